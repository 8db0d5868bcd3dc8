//! `bypath bench directfuse --figure distributed`: the paper's figure over a distributed file system. Sequential writes and
//! reads by 1 to 16 clients ("nodes": a session, and where it may a mount namespace, of its own each) against 1, 2 and 4
//! object servers of a CephFS cluster on this machine, whose contents are in memory.
//!
//! All of it shares this machine's processors: with few of them the figure shows what the ways cost, not how they scale. So
//! each row says which part of the time that processors were busy went to the cluster's own processes.
//!
//! | file | |
//! |---|---|
//! | `cluster.rs` | the cluster, and what it takes of the processors |
//! | `node.rs` | a client, by each way, and what it does |
//! | `report.rs` | Markdown, CSV, SVG |

mod cluster;
pub mod node;
mod report;

use super::{Options, leavings};
use cluster::{Busy, Cluster};
use node::{Node, Way};
use std::time::Instant;

/// What each client does, all at once: `read` is a file that another has written, `again` the same once more.
pub const JOBS: [&str; 3] = ["write", "read", "again"];

/// One job of one number of clients.
pub struct Row {
    servers: u32,
    way: Way,
    clients: usize,
    job: &'static str,
    mib_per_second: f64,
    /// Of the time that processors were busy.
    servers_share: f64,
    sum: u64,
}

/// Everything.
pub struct Results {
    machine: String,
    mib: u64,
    rows: Vec<Row>,
}

impl Results {
    fn find(&self, servers: u32, way: Way, clients: usize, job: &str) -> Option<&Row> {
        self.rows.iter().find(|row| (row.servers, row.way, row.clients, row.job) == (servers, way, clients, job))
    }

    /// Whether all read what was written.
    fn same_work(&self) -> bool {
        let sum = |row: &Row| self.rows.iter().find(|one| (one.clients, one.job) == (row.clients, "write")).map(|one| one.sum);
        self.rows.iter().all(|row| Some(row.sum) == sum(row))
    }

    fn all<T: Ord>(&self, of: impl Fn(&Row) -> T) -> Vec<T> {
        let mut all: Vec<T> = self.rows.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Measures and reports it.
pub fn run(options: &Options) -> Result<u8, String> {
    cluster::is_there()?;
    let (servers, clients, mib): (&[u32], &[usize], u64) =
        if options.quick { (&[1], &[1, 2], 4) } else { (&[1, 2, 4], &[1, 2, 4, 8, 16], 32) };
    let place = std::env::temp_dir();
    leavings::sweep(&place);
    let mut rows = Vec::new();
    for &servers in servers {
        leavings::go_on()?;
        let cluster = Cluster::start(&leavings::own(&place, ".d"), servers)?;
        for way in Way::ALL {
            for &clients in clients {
                leavings::go_on()?;
                eprintln!("bench: {servers} object servers, {}, {clients} clients", way.name());
                match measure(&cluster, way, clients, mib) {
                    Ok(new) => rows.extend(new),
                    Err(what) if way == Way::Kernel => {
                        eprintln!("bench: {what}: that way is left out");
                        break;
                    }
                    Err(what) => return Err(what),
                }
            }
        }
    }
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let machine = format!("{}; {processors} processors for clients and cluster together", crate::run::processor());
    let results = Results { machine, mib, rows };
    report::print(&results);
    if let Some(path) = &options.csv {
        std::fs::write(path, report::csv(&results)).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &options.plot {
        report::draw(&results, path)?;
    }
    if results.same_work() { Ok(0) } else { Err("what was read is not what was written: see the checksums".into()) }
}

/// All jobs of so many clients at once.
fn measure(cluster: &Cluster, way: Way, clients: usize, mib: u64) -> Result<Vec<Row>, String> {
    // One after the other is told to start, and all are waited for.
    let nodes: Result<Vec<Node>, String> = (0..clients).map(|number| Node::start(cluster, way, number)).collect();
    let mut nodes = nodes?;
    for node in &mut nodes {
        node.wait_until_ready()?;
    }
    let mut rows = Vec::new();
    for job in JOBS {
        if job == "read" {
            all(&mut nodes, "look", |number| (number + 1) % clients, mib)?;
        }
        let (before, begun) = (Busy::now(cluster), Instant::now());
        // Another one's, so that nobody has it.
        let file = |number| if job == "write" { number } else { (number + 1) % clients };
        let sum = all(&mut nodes, job, file, mib)?;
        let seconds = begun.elapsed().as_secs_f64();
        let servers_share = Busy::now(cluster).share_since(&before);
        let mib_per_second = (mib * clients as u64) as f64 / seconds;
        rows.push(Row { servers: cluster.servers, way, clients, job, mib_per_second, servers_share, sum });
    }
    all(&mut nodes, "remove", |number| number, mib)?;
    Ok(rows)
}

/// Has all do something at once, each with its file; the sum of what they answer.
fn all(nodes: &mut [Node], job: &str, file: impl Fn(usize) -> usize, mib: u64) -> Result<u64, String> {
    for (number, node) in nodes.iter_mut().enumerate() {
        node.tell(&format!("{job}\t{}\t{mib}", file(number)))?;
    }
    nodes.iter_mut().try_fold(0u64, |sum, node| Ok(sum.wrapping_add(node.answer()?)))
}
