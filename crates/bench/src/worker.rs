//! A process that works on command: `call threads n` on a line of its standard
//! input, `nanoseconds calls checksum` on one of its output.

use crate::calls::{Api, Calls, Libc, text};
use crate::work::{Hand, Spent};
use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::sync::Barrier;

/// Threads that a worker has files for.
pub const THREADS: usize = 2;

/// `libc DIR NUMBER N ENTRIES` or `api IMAGE NUMBER N ENTRIES`.
pub fn serve(args: &[OsString]) -> Result<(), String> {
    let words: Vec<&str> = args.iter().filter_map(|a| a.to_str()).collect();
    let [how, place, number, n, entries] = words[..] else { return Err("worker: how, place, number, n, entries".into()) };
    let (n, entries) = (n.parse().map_err(|_| "worker: n")?, entries.parse().map_err(|_| "worker: entries")?);
    let place = text(place.to_string());
    match how {
        "libc" => {
            if Libc.chdir(&place) != 0 {
                return Err(format!("{place:?}: {}", std::io::Error::last_os_error()));
            }
            work(&Libc, number, n, entries)
        }
        "api" => work(&Api::open(&place)?, number, n, entries),
        _ => Err(format!("worker: {how}?")),
    }
}

fn work<C: Calls>(calls: &C, number: &str, n: usize, entries: usize) -> Result<(), String> {
    let listed = |thread: usize| if number == "0" && thread == 0 { entries } else { 0 };
    let mut hands: Vec<Hand> = (0..THREADS).map(|t| Hand::new(calls, &format!("p{number}t{t}"), n, listed(t))).collect();
    let mut out = std::io::stdout().lock();
    let mut say = |text: String| out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string());
    say("ready\n".into())?;
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let mut words = line.split('\t');
        let (Some(name), Some(threads), Some(n)) = (words.next(), words.next(), words.next()) else { break };
        let threads: usize = threads.parse().map_err(|_| "worker: threads")?;
        let n: usize = n.parse().map_err(|_| "worker: calls")?;
        let spent = run(calls, &mut hands[..threads], name, n);
        say(format!("{}\t{}\t{}\n", spent.ns, spent.calls, spent.sum))?;
    }
    Ok(())
}

/// All threads at once; the slowest one's time, per thread's calls.
fn run<C: Calls>(calls: &C, hands: &mut [Hand], name: &str, n: usize) -> Spent {
    if let [hand] = hands {
        return hand.run(calls, name, n);
    }
    let barrier = Barrier::new(hands.len());
    let all: Vec<Spent> = std::thread::scope(|scope| {
        let threads: Vec<_> = hands
            .iter_mut()
            .map(|hand| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    hand.run(calls, name, n)
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("worker thread")).collect()
    });
    let slowest = all.iter().copied().max_by_key(|s| s.ns).unwrap_or_default();
    Spent { sum: all.iter().fold(0, |sum, s| sum.wrapping_add(s.sum)), ..slowest }
}
