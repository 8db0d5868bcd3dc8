//! Processors, leaving one, and going to one.

use crate::call;
use crate::sys::abi;

/// Words of a mask of processors: 8,192 of them, as many as Linux knows.
const WORDS: usize = 128;

/// The processor that this thread runs on, as long as it does.
pub fn number() -> Option<u32> {
    let mut number = 0u32;
    // SAFETY: writes one word of ours; the others are not asked for.
    unsafe { call!(abi::__NR_getcpu, &raw mut number, 0, 0) }.ok().map(|_| number)
}

/// This thread leaves a processor for one of the others that it may run on, and may run on all of
/// them again at once. False if there is no other, or it may not.
pub fn leave(number: u32) -> bool {
    let mut all = [0u64; WORDS];
    // SAFETY: writes as many bytes as there are, at most.
    let Ok(len) = (unsafe { call!(abi::__NR_sched_getaffinity, 0, size_of_val(&all), all.as_mut_ptr()) }) else { return false };
    let mut others = all;
    if let Some(word) = others.get_mut(number as usize / 64) {
        *word &= !(1 << (number % 64));
    }
    if others == [0; WORDS] {
        return false;
    }
    // SAFETY: reads as many bytes as the kernel has written.
    let set = |mask: &[u64; WORDS]| unsafe { call!(abi::__NR_sched_setaffinity, 0, len, mask.as_ptr()) }.is_ok();
    set(&others) && set(&all)
}

/// This thread goes to a processor, and may run on all the others again at once. False if it may not run there.
pub fn join(number: u32) -> bool {
    let mut all = [0u64; WORDS];
    // SAFETY: writes as many bytes as there are, at most.
    let Ok(len) = (unsafe { call!(abi::__NR_sched_getaffinity, 0, size_of_val(&all), all.as_mut_ptr()) }) else { return false };
    let mut one = [0u64; WORDS];
    let at = number as usize / 64;
    match (all.get(at), one.get_mut(at)) {
        (Some(may), Some(word)) => *word = may & 1 << (number % 64),
        _ => return false,
    }
    if one == [0; WORDS] {
        return false;
    }
    // SAFETY: reads as many bytes as the kernel has written.
    let set = |mask: &[u64; WORDS]| unsafe { call!(abi::__NR_sched_setaffinity, 0, len, mask.as_ptr()) }.is_ok();
    set(&one) && set(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_run_on() -> ([u64; WORDS], bool) {
        let mut all = [0u64; WORDS];
        // SAFETY: writes as many bytes as there are, at most.
        let asked = unsafe { call!(abi::__NR_sched_getaffinity, 0, size_of_val(&all), all.as_mut_ptr()) };
        (all, asked.is_ok())
    }

    /// Goal: who leaves his processor is on another one if there is one, and may come back.
    #[test]
    fn leaves() {
        let before = may_run_on();
        assert!(before.1);
        let is_alone = before.0.iter().map(|word| word.count_ones()).sum::<u32>() == 1;
        for _ in 0..20 {
            let own = number().unwrap();
            assert_eq!(leave(own), !is_alone);
            assert_eq!(may_run_on(), before);
        }
        assert!(!leave(u32::MAX) || !is_alone);
    }

    /// Goal: who may run on a processor gets there, and may run on all others after that.
    #[test]
    fn joins() {
        let before = may_run_on();
        let first = before.0.iter().flat_map(|word| (0..64).map(move |bit| word >> bit & 1)).position(|bit| bit == 1);
        // The kernel may move this thread before the look.
        assert!((0..100).any(|_| join(first.unwrap() as u32) && number() == Some(first.unwrap() as u32)));
        assert_eq!(may_run_on(), before);
        assert!(!join(u32::MAX));
    }
}
