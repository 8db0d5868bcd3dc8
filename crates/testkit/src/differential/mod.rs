//! Random sequences of calls, made on tmpfs by the kernel and on a backend by
//! [`posix::Process::handle`], or by the kernel through the mount of an image:
//! results, error numbers, data, attributes and the final tree must be the same.
//!
//! Both sides are called by system-call number with the same raw arguments.
//! The kernel's side lives in a root directory of its own, so that absolute
//! paths and symlinks mean the same on both. Each batch of sequences runs in a
//! child process; one that differs, crashes or hangs is repeated there with
//! ever fewer steps, until none can be left out.

pub mod cached;
pub mod compare;
pub mod generate;
pub mod op;
pub mod run;
pub mod sandbox;
pub mod shrink;
pub mod side;

use crate::world::World;
use compare::Clock;
use run::{Limits, Pair};
use sandbox::{Report, Watch};
use std::ffi::CStr;
use std::path::PathBuf;
use vfs::Backend;

/// What is compared with tmpfs.
pub enum Ours {
    /// A backend in a process of its own: made in the child, before that enters its own root.
    Alone(fn() -> &'static dyn Backend),
    /// One whose open files are the kernel's.
    BesideKernel(fn() -> &'static dyn Backend),
    /// A cache image in front of a directory of the kernel's, with rounds between the calls, or all the time.
    #[allow(missing_docs)]
    Cached { busy: bool },
    /// A directory where an image is mounted. One child at a time can use it.
    Mounted(PathBuf),
}

/// Where the second file system is, if there are two ([`Plan::nested`]): a name that sequences use.
pub const INSIDE: &CStr = c"/b";

/// What to run.
pub struct Plan {
    /// The file system.
    pub ours: Ours,
    /// Another one like it is mounted inside it, at [`INSIDE`]; only if it is [`Ours::Alone`].
    pub nested: bool,
    /// What it can't do.
    pub limits: Limits,
    /// Steps in all.
    pub ops: u64,
    /// Steps of one sequence.
    pub len: usize,
    /// First sequence.
    pub seed: u64,
    /// Processes at a time.
    pub jobs: usize,
}

/// Sequences that one child runs.
const BATCH: u64 = 40;

/// Runs the plan; prints the first failure, shrunk, and returns false if there is one.
pub fn run(plan: &Plan) -> bool {
    let sequences = plan.ops.div_ceil(plan.len as u64);
    let mut failure = None;
    let mut from = 0;
    while from < sequences && failure.is_none() {
        let children: Vec<_> = (0..plan.jobs as u64)
            .map(|job| (from + job * BATCH, (from + (job + 1) * BATCH).min(sequences)))
            .filter(|(first, end)| first < end)
            .map(|(first, end)| sandbox::spawn(|watch| batch(plan, first, end, watch)))
            .collect();
        from += BATCH * plan.jobs as u64;
        for child in children {
            if let Report::Failed { sequence, step, text } = child.wait(20) {
                failure.get_or_insert((sequence, step, text));
            }
        }
    }
    if let Some((.., text)) = failure.as_ref().filter(|(.., text)| text.starts_with(sandbox::NO_ROOT)) {
        println!("skip differential: {text}: NOT compared");
        return true;
    }
    let Some((sequence, step, text)) = failure else {
        println!("{} steps in {sequences} sequences from seed {}: the same", sequences * plan.len as u64, plan.seed);
        return true;
    };
    println!("sequence {} (--seed {} --ops {}) differs at step {step}:\n  {text}", sequence, plan.seed + sequence, plan.len);
    let ops = generate::sequence(plan.seed + sequence, plan.len);
    let (ops, text) = shrink::shrink(plan, ops, step, text);
    println!("shrunk to {} steps:", ops.len());
    for op in &ops {
        println!("  {op}");
    }
    println!("{text}");
    false
}

/// Runs sequences `first..end` in this child.
fn batch(plan: &Plan, first: u64, end: u64, watch: &Watch) -> Result<(), String> {
    with_pair(plan, &|pair| {
        for sequence in first..end {
            watch.sequence(sequence);
            pair.run(&generate::sequence(plan.seed + sequence, plan.len), &|step| watch.step(step)).map_err(|d| d.text)?;
        }
        Ok(())
    })
}

/// Runs these steps in a child; what failed, if anything did.
pub(crate) fn attempt(plan: &Plan, ops: &[op::Op]) -> Option<(usize, String)> {
    let child = sandbox::spawn(|watch| with_pair(plan, &|pair| pair.run(ops, &|step| watch.step(step)).map_err(|d| d.text)));
    match child.wait(10) {
        Report::Failed { step, text, .. } => Some((step, text)),
        Report::Fine => None,
    }
}

/// Makes both sides in this child, each with an empty tree.
fn with_pair(plan: &Plan, work: &dyn Fn(&Pair) -> Result<(), String>) -> Result<(), String> {
    let clock = Clock { blocks: !plan.limits.space_ahead, directories: !plan.limits.late_directory_sizes, ..Clock::new() };
    let (world, elsewhere, mounted, cached);
    let mut between: Option<&dyn run::Between> = None;
    let (kernel, ours): (&dyn side::Side, &dyn side::Side) = match &plan.ours {
        Ours::Alone(backend) => {
            world = World::new(backend());
            if plan.nested {
                world.mount_inside(INSIDE, backend());
            }
            sandbox::own_root(plan.nested.then_some(INSIDE))?;
            (&side::Kernel, &world)
        }
        Ours::BesideKernel(backend) => {
            let backend = backend();
            elsewhere = side::KernelElsewhere::start()?;
            world = World::beside_kernel(backend);
            (&elsewhere, &world)
        }
        Ours::Cached { busy } => {
            // First, so that it has none of the descriptors of the other.
            elsewhere = side::KernelElsewhere::start()?;
            cached = cached::Cached::start(*busy)?;
            between = Some(&cached);
            (&elsewhere, &cached)
        }
        Ours::Mounted(directory) => {
            mounted = side::KernelElsewhere::inside(directory)?;
            elsewhere = side::KernelElsewhere::start()?;
            (&elsewhere, &mounted)
        }
    };
    // What an earlier child left behind, and when.
    let roots = if plan.nested { &[c"/", INSIDE][..] } else { &[c"/"] };
    compare::clear(ours, roots)?;
    let pair = Pair { kernel, ours, clock, limits: plan.limits, roots, between };
    pair.plain_roots(ours);
    work(&pair)
}
