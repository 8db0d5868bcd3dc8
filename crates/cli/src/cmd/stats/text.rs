//! Figures as text, for people and for Prometheus.

use super::sample::{Image, Sample};
use crate::cmd::mounts;
use crate::size;
use std::fmt::Write as _;

/// For people: an image a paragraph, a process a line.
pub fn people(sample: &Sample) -> String {
    let mut text = String::new();
    for image in &sample.images {
        let at = if image.points.is_empty() { String::new() } else { format!(" at {}", image.points.join(", ")) };
        let percent = image.used * 100 / (image.used + image.free).max(1);
        let _ = writeln!(text, "{}{at}", image.image);
        let _ = writeln!(
            text,
            "  space      {} used, {} free ({percent} %), may grow to {}; {} files",
            size::show(image.used),
            size::show(image.free),
            size::show(image.limit),
            image.files
        );
        let _ = writeln!(
            text,
            "  in use     {} open files, {} locks, {} of {} files cached, {} threads waiting",
            image.open_files, image.locks, image.cached, image.cached_max, image.waiting
        );
        let _ = writeln!(
            text,
            "  calls      {} by symbols, {} patched, {} through the kernel mount; {} changes ever",
            image.calls.symbols, image.calls.patched, image.calls.mount, image.changes
        );
        for process in &image.processes {
            let waits = if process.waits_for.is_empty() {
                String::new()
            } else {
                format!(", waits for {}", process.waits_for.join(", "))
            };
            let _ = writeln!(
                text,
                "  {:<10} {} {}: {} calls, {} fds{waits}",
                process.pid, process.state, process.command, process.calls, process.fds
            );
        }
    }
    for row in &sample.mounts {
        text += &row.line();
    }
    for one in &sample.unreadable {
        let _ = writeln!(text, "{}: not shown: {}", one.image, one.reason);
    }
    if text.is_empty() { "no session of this user's runs; name an image\n".to_string() } else { text }
}

/// A metric: its name, what it is, its kind.
type Metric = (&'static str, &'static str, &'static str);

/// Prometheus's text format, version 0.0.4.
pub fn prometheus(sample: &Sample) -> String {
    let mut out = String::new();
    type Value = fn(&Image) -> u64;
    const IMAGES: [(Metric, Value); 11] = [
        (("bypath_image_limit_bytes", "Bytes the image may grow to.", "gauge"), |i| i.limit),
        (("bypath_image_used_bytes", "Bytes in use, tables included.", "gauge"), |i| i.used),
        (("bypath_image_free_bytes", "Bytes free.", "gauge"), |i| i.free),
        (("bypath_image_files", "Files and directories.", "gauge"), |i| i.files),
        (("bypath_image_open_files", "Open files.", "gauge"), |i| i.open_files.into()),
        (("bypath_image_locks", "Advisory locks.", "gauge"), |i| i.locks.into()),
        (("bypath_image_cached_files", "Files whose attributes are cached.", "gauge"), |i| i.cached.into()),
        (("bypath_image_cached_files_max", "How many files can be cached.", "gauge"), |i| i.cached_max.into()),
        (("bypath_image_waiting_threads", "Threads that wait for another one.", "gauge"), |i| i.waiting.into()),
        (("bypath_image_processes", "Processes that use the image.", "gauge"), |i| i.processes.len() as u64),
        (("bypath_image_changes_total", "Changes ever made.", "counter"), |i| i.changes),
    ];
    for (metric, value) in IMAGES {
        let lines = sample.images.iter().map(|image| (labels(&[("image", &image.image)]), value(image)));
        family(&mut out, metric, lines);
    }
    let ways = sample.images.iter().flat_map(|image| {
        let calls = image.calls;
        [("symbols", calls.symbols), ("patched", calls.patched), ("mount", calls.mount)]
            .map(|(way, count)| (labels(&[("image", &image.image), ("way", way)]), count))
    });
    family(&mut out, ("bypath_calls_total", "Calls by way; programs add them by thousands.", "counter"), ways);
    let of_processes = |value: fn(&super::sample::Process) -> u64| {
        sample.images.iter().flat_map(move |image| {
            let one = move |process: &super::sample::Process| {
                let pid = process.pid.to_string();
                let of = [("image", image.image.as_str()), ("pid", &pid), ("command", &process.command)];
                (labels(&of), value(process))
            };
            image.processes.iter().map(one)
        })
    };
    family(
        &mut out,
        ("bypath_process_calls_total", "Calls of a process; added by thousands.", "counter"),
        of_processes(|p| p.calls),
    );
    family(&mut out, ("bypath_process_fds", "Fds of a process in the image.", "gauge"), of_processes(|p| p.fds.into()));
    of_mounts(&mut out, sample);
    out
}

fn of_mounts(out: &mut String, sample: &Sample) {
    type Value = fn(&mounts::Row) -> Option<u64>;
    const MOUNTS: [(Metric, Value); 18] = [
        (("bypath_mount_programs", "Programs that use the mount.", "gauge"), |m| m.programs.map(u64::from)),
        (("bypath_mount_names", "Names known.", "gauge"), |m| m.nodes.map(u64::from)),
        (("bypath_mount_lookup_hits_total", "Names found in the cache.", "counter"), |m| m.hits),
        (("bypath_mount_lookup_misses_total", "Names asked for.", "counter"), |m| m.misses),
        (("bypath_mount_page_bytes", "Bytes of contents cached.", "gauge"), |m| m.page_bytes),
        (("bypath_mount_page_hits_total", "Parts of reads found in the cache.", "counter"), |m| m.page_hits),
        (("bypath_mount_page_misses_total", "Parts of reads asked for.", "counter"), |m| m.page_misses),
        (("bypath_mount_requests_total", "Requests to the daemon.", "counter"), |m| m.requests),
        (("bypath_cache_calls_total", "Calls on the mount; programs add them by thousands.", "counter"), |m| {
            Some(m.cache?.calls)
        }),
        (("bypath_cache_fetches_total", "Times that something was asked for below.", "counter"), |m| Some(m.cache?.fetches)),
        (("bypath_cache_fetched_names_total", "Names fetched from below.", "counter"), |m| Some(m.cache?.fetched_names)),
        (("bypath_cache_fetched_bytes_total", "Bytes fetched from below.", "counter"), |m| Some(m.cache?.fetched_bytes)),
        (("bypath_cache_dirty_names", "Names whose changes are not below.", "gauge"), |m| Some(m.cache?.dirty_names)),
        (("bypath_cache_dirty_files", "Files whose changes are not below.", "gauge"), |m| Some(m.cache?.dirty_files)),
        (("bypath_cache_dirty_bytes", "Bytes that a round would write.", "gauge"), |m| Some(m.cache?.dirty_bytes)),
        (("bypath_cache_lag_milliseconds", "Age of the oldest change not below.", "gauge"), |m| Some(m.cache?.lag_ms)),
        (("bypath_cache_rounds_total", "Rounds ever.", "counter"), |m| Some(m.cache?.rounds)),
        (("bypath_cache_written_bytes_total", "Bytes written back ever.", "counter"), |m| Some(m.cache?.written_bytes)),
    ];
    for (metric, value) in MOUNTS {
        let lines = sample.mounts.iter().filter_map(|mount| {
            Some((labels(&[("point", &mount.point), ("source", &mount.source), ("state", mount.state)]), value(mount)?))
        });
        family(out, metric, lines);
    }
}

/// A metric with its lines; nothing where there are none.
fn family(out: &mut String, (name, help, kind): Metric, lines: impl Iterator<Item = (String, u64)>) {
    let mut is_first = true;
    for (labels, value) in lines {
        if std::mem::take(&mut is_first) {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

fn labels(of: &[(&str, &str)]) -> String {
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<String> = of.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: labels are what Prometheus reads back. Method: a value with all that it escapes.
    #[test]
    fn labels_are_escaped() {
        assert_eq!(labels(&[("image", "a\"b\\c\nd"), ("way", "x")]), r#"{image="a\"b\\c\nd",way="x"}"#);
    }

    /// Goal: no sample, no metric; and a word for people. Method: an empty sample.
    #[test]
    fn nothing_to_show() {
        assert_eq!(prometheus(&Sample::default()), "");
        assert!(people(&Sample::default()).contains("no session"));
    }
}
