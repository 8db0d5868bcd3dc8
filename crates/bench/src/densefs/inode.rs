//! Bytes of an inode: the paper's are 56, in one line.

use crate::figure::Figure;

/// Slabs of the kernel's inodes, as far as this one has them.
const SLABS: [(&str, &str); 5] = [
    ("tmpfs", "shmem_inode_cache"),
    ("ext4", "ext4_inode_cache"),
    ("xfs", "xfs_inode"),
    ("btrfs", "btrfs_inode"),
    ("f2fs", "f2fs_inode_cache"),
];

/// In memory: an image's is the medium's, the kernel's are what `/proc/slabinfo` says of this kernel, to root.
pub fn figure() -> Figure {
    let mut figure = Figure::new("inode", "an inode in memory", "bytes", &["bytes", "lines"])
        .paper("DenseFS's inode has 112 bytes at first, 56 with times, numbers and owners made small: one line.");
    let mut row = |name: &str, bytes: Option<usize>| {
        figure.row(name, vec![bytes.map(|n| n as f64), bytes.map(|n| n.div_ceil(64) as f64)]);
    };
    row("image", Some(size_of::<format::Inode>()));
    let slabs = std::fs::read_to_string("/proc/slabinfo").unwrap_or_default();
    for (name, slab) in SLABS {
        let line = slabs.lines().find(|line| line.split(' ').next() == Some(slab));
        row(name, line.and_then(|line| line.split_whitespace().nth(3)).and_then(|bytes| bytes.parse().ok()));
    }
    figure
}
