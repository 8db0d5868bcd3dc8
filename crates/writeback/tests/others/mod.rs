pub mod contents;
pub mod explorer;
pub mod operations;
pub mod oracle;
pub mod twin;
