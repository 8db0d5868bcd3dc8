//! Leaves out steps of a failing sequence for as long as it fails the same way.

use super::op::Op;
use super::{Plan, attempt};

/// What a failure is about: its text without the values that vary.
fn kind(text: &str) -> String {
    let head = text.lines().next().unwrap_or_default();
    head.split('(').next().unwrap_or_default().to_string()
}

/// The shortest sequence found that still fails, and how it fails.
pub fn shrink(plan: &Plan, mut ops: Vec<Op>, step: usize, text: String) -> (Vec<Op>, String) {
    ops.truncate(step + 1);
    let mut text = match attempt(plan, &ops) {
        Some((_, text)) => text,
        // It needed what earlier sequences left behind.
        None => return (ops, text + "\n  (not on a fresh file system)"),
    };
    let wanted = kind(&text);
    let mut chunk = ops.len().div_ceil(2);
    while chunk >= 1 {
        let mut at = 0;
        let mut removed = false;
        while at < ops.len() {
            let end = (at + chunk).min(ops.len());
            let shorter: Vec<Op> = ops[..at].iter().chain(&ops[end..]).cloned().collect();
            match attempt(plan, &shorter) {
                Some((_, now)) if kind(&now) == wanted => {
                    (ops, text, removed) = (shorter, now, true);
                }
                _ => at = end,
            }
        }
        if chunk == 1 && !removed {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk.div_ceil(2) };
    }
    (ops, text)
}
