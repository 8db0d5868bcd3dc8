//! Flame graphs of a call's code: how many bytes of instructions, each counted once, which functions brought in, by callers and
//! called. For the kernel's, and on demand, by parts of it in place of functions, as the paper's *cgstacks* are: a part stands once, where it
//! was first entered. Drawn here: a library for it would bring more code than this has.

use super::stacks::Stacks;
use crate::budget::lackey::Kind;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;

const WIDTH: f64 = 900.0;
const LEVEL: usize = 17;

/// A part or function, with those it called.
#[derive(Default)]
struct Node {
    bytes: u64,
    inner: BTreeMap<String, Node>,
}

impl Node {
    fn depth(&self) -> usize {
        1 + self.inner.values().map(Node::depth).max().unwrap_or(0)
    }
}

/// The kernel's parts, by how their functions' names begin; the first that fits counts.
const PARTS: [(&str, &[&str]); 10] = [
    ("entry", &["entry_", "do_syscall", "syscall_", "x64_sys", "__x64_sys", "exit_to_user", "__do_sys", "__se_sys", "ksys_"]),
    (
        "security",
        &["security_", "apparmor", "aa_", "selinux", "cap_", "capable", "ns_capable", "yama", "tomoyo", "landlock", "audit"],
    ),
    (
        "locks",
        &[
            "_raw_",
            "mutex_",
            "__mutex",
            "down_",
            "up_",
            "__down",
            "__up",
            "rwsem",
            "__rcu",
            "rcu_",
            "lockref",
            "osq_",
            "percpu_",
            "__percpu",
            "native_queued",
            "__wake",
            "wake_",
            "autoremove",
            "refcount",
        ],
    ),
    (
        "memory",
        &[
            "kmem_",
            "kmalloc",
            "__kmalloc",
            "kfree",
            "___slab",
            "__slab",
            "slab_",
            "memcg",
            "__memcg",
            "mem_cgroup",
            "obj_cgroup",
            "__mod_",
            "mod_",
            "get_page",
            "__alloc",
            "alloc_pages",
            "free_",
            "__free",
            "mempool",
            "memset",
            "memcpy",
            "memmove",
            "__memset",
            "__memcpy",
            "cgroup_",
            "propagate_",
        ],
    ),
    (
        "user memory",
        &[
            "copy_",
            "_copy",
            "strncpy_from",
            "__check_object",
            "check_stack",
            "__virt_addr",
            "rep_movs",
            "clear_user",
            "cp_new_stat",
            "fault_in",
        ],
    ),
    (
        "page cache",
        &[
            "filemap_",
            "__filemap",
            "pagecache",
            "folio_",
            "__folio",
            "find_get",
            "generic_perform",
            "generic_file",
            "balance_dirty",
            "truncate_",
            "xas_",
            "xa_",
            "__xa",
            "lru_",
            "page_",
            "__set_page",
            "iov_iter",
            "shmem_get_folio",
            "block_",
            "__block",
            "create_empty",
            "pagevec",
            "workingset",
            "iomap_",
        ],
    ),
    (
        "journal",
        &[
            "jbd2_",
            "start_this_handle",
            "add_transaction",
            "do_get_write",
            "__jbd2",
            "xlog_",
            "xfs_log",
            "xfs_trans",
            "xfs_buf_item",
        ],
    ),
    ("time", &["ktime_", "current_time", "timestamp", "read_tsc", "inode_set_ctime"]),
    ("notify", &["fsnotify", "__fsnotify", "inotify"]),
    (
        "vfs",
        &[
            "path_",
            "link_path",
            "lookup_",
            "__lookup",
            "walk_",
            "step_",
            "do_",
            "vfs_",
            "d_",
            "__d_",
            "dput",
            "dget",
            "dentry",
            "__dentry",
            "mnt_",
            "mntput",
            "mntget",
            "__mnt",
            "inode_",
            "__inode",
            "iput",
            "iget",
            "ihold",
            "new_inode",
            "alloc_inode",
            "getname",
            "putname",
            "filename_",
            "set_nameidata",
            "restore_nameidata",
            "terminate_walk",
            "complete_walk",
            "unlazy",
            "try_to_unlazy",
            "legitimize",
            "nd_jump",
            "may_",
            "generic_permission",
            "make_vfsuid",
            "alloc_fd",
            "fd_install",
            "close_fd",
            "__fget",
            "__fdget",
            "fput",
            "__fput",
            "alloc_file",
            "alloc_empty_file",
            "file_",
            "__file",
            "task_work",
            "filp_",
            "evict",
            "touch_atime",
            "atime_",
            "generic_fillattr",
            "generic_",
            "rw_verify",
            "new_sync",
            "lock_rename",
            "unlock_rename",
            "take_dentry",
            "release_dentry",
            "simple_",
            "insert_inode",
            "locks_",
            "user_path",
            "set_root",
            "pick_link",
            "open_",
            "build_open",
            "__legitimize",
            "prepend",
            "fs_",
        ],
    ),
];

/// The part of a function of the kernel's, or of a crate of this project's.
fn part(name: &str) -> String {
    if let Some((_, module)) = name.split_once(" [") {
        let module = module.trim_end_matches(']');
        return if module == "jbd2" { "journal".into() } else { module.into() };
    }
    if let Some((first, rest)) = name.split_once("::") {
        let inner = rest.split("::").next().unwrap_or("");
        return match first {
            "engine" if rest.contains("::") => format!("{first}::{inner}"),
            "core" | "alloc" | "std" | "compiler_builtins" => "library".into(),
            _ => first.into(),
        };
    }
    if name.starts_with("bp_") {
        return "capi".into();
    }
    if name.starts_with("shmem_") || name.starts_with("ramfs_") {
        return "tmpfs".into();
    }
    let found = PARTS.iter().find(|(_, beginnings)| beginnings.iter().any(|beginning| name.starts_with(beginning)));
    found.map_or("other", |(part, _)| part).into()
}

/// A flame graph.
pub struct Flame(Node);

impl Flame {
    /// Of a call; by parts, or by functions.
    pub fn of(stacks: &Stacks, by_parts: bool) -> Flame {
        let (mut root, mut counted) = (Node::default(), HashSet::new());
        for placed in stacks.placed.iter().filter(|placed| placed.access.kind == Kind::Code) {
            // Each instruction once, for whom it came in first.
            if !counted.insert(placed.access.address) {
                continue;
            }
            let (bytes, mut node, mut seen) = (u64::from(placed.access.size), &mut root, HashSet::new());
            node.bytes += bytes;
            for name in &stacks.all[placed.stack] {
                let name = if by_parts { part(name) } else { name.to_string() };
                if by_parts && !seen.insert(name.clone()) {
                    continue;
                }
                node = node.inner.entry(name).or_default();
                node.bytes += bytes;
            }
        }
        Flame(root)
    }

    /// As SVG, with a title.
    pub fn svg(&self, title: &str) -> String {
        let height = (self.0.depth() - 1) * LEVEL + 24;
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{height}' viewBox='0 0 {WIDTH} {height}' \
             font-family='sans-serif'><rect width='100%' height='100%' fill='#fff'/>\
             <text x='2' y='14' font-size='12'>{title}: {} bytes of instructions</text>",
            self.0.bytes
        );
        draw(&self.0, 0.0, height, self.0.bytes.max(1) as f64, &mut svg);
        svg + "</svg>"
    }
}

/// The same hue for the same name.
fn hue(name: &str) -> u32 {
    name.bytes().fold(17u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte))) % 360
}

fn draw(node: &Node, mut left: f64, bottom: usize, whole: f64, svg: &mut String) {
    for (name, inner) in &node.inner {
        let width = inner.bytes as f64 / whole * WIDTH;
        if width >= 0.5 {
            let (y, name) = (bottom - LEVEL, escape(name));
            let room = (width / 6.3) as usize;
            let tail = name.rsplit("::").next().unwrap_or(&name);
            let label = if name.len() <= room { &name } else { tail };
            let label = if label.len() <= room { label } else { "" };
            let _ = write!(
                svg,
                "<g><title>{name}: {} bytes, {:.1} %</title><rect x='{left:.1}' y='{y}' width='{width:.1}' height='{}' \
                 fill='hsl({},60%,75%)'/><text x='{:.1}' y='{}' font-size='11'>{label}</text></g>",
                inner.bytes,
                inner.bytes as f64 / whole * 100.0,
                LEVEL - 1,
                hue(&name),
                left + 3.0,
                y + 12
            );
            draw(inner, left, y, whole, svg);
        }
        left += width;
    }
}

/// For HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::super::stacks::Placed;
    use super::*;
    use crate::budget::lackey::Access;

    /// Goal: an instruction counts once, a part stands once. Method: one executed twice, below a part that comes back.
    #[test]
    fn parts_stand_once() {
        let placed = || Placed { access: Access { kind: Kind::Code, address: 64, size: 7 }, stack: 0 };
        let all = vec![["vfs_stat", "ext4_getattr [ext4]", "generic_fillattr"].map(std::rc::Rc::from).to_vec()];
        let stacks = Stacks { placed: vec![placed(), placed()], all };
        let flame = Flame::of(&stacks, true);
        assert_eq!((flame.0.bytes, flame.0.depth()), (7, 3));
        assert!(flame.0.inner["vfs"].inner["ext4"].inner.is_empty());
        assert_eq!(Flame::of(&stacks, false).0.depth(), 4);
        assert!(flame.svg("t").contains("ext4: 7 bytes, 100.0 %"));
    }
}
