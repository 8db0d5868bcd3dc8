//! The engine's checker and dump, as the commands use them.
