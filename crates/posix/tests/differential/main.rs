//! Goal: the calls on `mem` through `handle` give the results and error numbers
//! of tmpfs. Method: random sequences over a small set of names and
//! descriptors, made in both worlds, compared call by call; the seed is printed.
//! `BYPATH_SEED`, `BYPATH_OPS` choose another run.

#[path = "../common/mod.rs"]
mod common;
mod op;
mod run;

use common::{Random, World};
use op::{Op, op};
use pm::sys::abi::*;
use run::Run;

/// Known and kept: for `O_CREAT` through a symlink that ends in a slash, the
/// kernel looks at the slash before it goes on; and whether space allocated in
/// advance is data or a hole is each file system's own.
fn allowed(op: &Op, mine: &[i64], theirs: &[i64]) -> bool {
    match op {
        Op::Open { flags, .. } => flags & O_CREAT != 0 && mine[0] < 0 && theirs == [-21],
        Op::Seek { whence, .. } => *whence > 2 && (mine[0] >= 0 || mine == [-6]) && (theirs[0] >= 0 || theirs == [-6]),
        _ => false,
    }
}

/// Whether it may join our tree and its surroundings, which is EXDEV for us, but
/// not for tmpfs where it is a mere directory because we may not mount.
fn leaves_the_tree(op: &Op) -> bool {
    matches!(op, Op::Link { from, to, .. } | Op::Rename { from, to, .. } if from.contains("..") || to.contains(".."))
}

/// The same sequence in both worlds.
fn differ(seed: u64, count: usize) {
    println!("seed {seed}");
    // The kernel's world has a thread with its own working directory and mask,
    // because ours moves those of this one.
    let (ask, asked) = std::sync::mpsc::channel::<Op>();
    let (answer, answered) = std::sync::mpsc::channel();
    let oracle = std::thread::spawn(move || {
        const CLONE_FS: usize = 0x200;
        // SAFETY: numbers only.
        unsafe { pm::sys::raw(__NR_unshare as usize, [CLONE_FS, 0, 0, 0, 0, 0]) };
        let mut kernel = Run::new(World::kernel());
        while let Ok(op) = asked.recv() {
            let _ = answer.send(kernel.run(&op));
        }
    });
    let mut ours = Run::new(World::ours());
    let mut random = Random(seed | 1);
    let mut history = std::collections::VecDeque::new();
    let mut failure = None;
    for index in 0..count {
        let op = if index == 0 { Op::Chdir { path: ".".into() } } else { op(&mut random) };
        if leaves_the_tree(&op) && !common::is_root() {
            continue;
        }
        ask.send(op.clone()).unwrap();
        let theirs = answered.recv().unwrap();
        let mine = ours.run(&op);
        history.push_back(format!("{op:?} -> {mine:?}"));
        if history.len() > number("BYPATH_HISTORY", 30) as usize {
            history.pop_front();
        }
        if mine != theirs && !allowed(&op, &mine, &theirs) {
            for line in &history {
                println!("{line}");
            }
            println!("{:?}", ours.slots);
            failure = Some(format!("seed {seed}, call {index}: {op:?}\n ours {mine:?}\n tmpfs {theirs:?}"));
            break;
        }
    }
    drop(ask);
    drop(ours);
    oracle.join().unwrap();
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn mem_behaves_as_tmpfs() {
    let count = number("BYPATH_OPS", 20_000) as usize;
    let first = number("BYPATH_SEED", 0);
    if first != 0 {
        return differ(first, count);
    }
    for seed in 1..=10 {
        differ(seed * 7919, count);
    }
}
