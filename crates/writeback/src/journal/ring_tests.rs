//! The power goes: what was acknowledged is there, what was not is not, or whole.

use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// Where, and what.
type Write = (u64, Vec<u8>);

/// A medium that remembers each write.
#[derive(Clone, Debug, Default)]
struct Log(Rc<RefCell<Vec<Write>>>, Rc<RefCell<Vec<u8>>>);

fn apply(bytes: &mut Vec<u8>, at: u64, write: &[u8]) {
    let end = at as usize + write.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at as usize..end].copy_from_slice(write);
}

impl Medium for Log {
    fn read(&self, at: u64, into: &mut [u8]) -> std::result::Result<usize, Errno> {
        let bytes = self.1.borrow();
        let there = bytes.get(at as usize..).unwrap_or(&[]);
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        Ok(len)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> std::result::Result<(), Errno> {
        assert!(at.is_multiple_of(BLOCK) && bytes.len().is_multiple_of(BLOCK as usize));
        apply(&mut self.1.borrow_mut(), at, bytes);
        self.0.borrow_mut().push((at, bytes.to_vec()));
        Ok(())
    }

    fn cut(&mut self, len: u64) -> std::result::Result<(), Errno> {
        self.1.borrow_mut().truncate(len as usize);
        Ok(())
    }
}

fn header() -> Header {
    Header { image: 7, root: 2, room: 2 * KEPT, directory: b"/srv".to_vec(), ..Header::default() }
}

fn body(number: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(number + 3) >> 3) as u8 | 1).collect()
}

fn open(bytes: Vec<u8>) -> (Ring<Log>, Vec<Vec<u8>>) {
    Ring::open(Log(Rc::default(), Rc::new(RefCell::new(bytes)))).unwrap().unwrap()
}

/// What the ring was asked, and what must be there after it: the first number and the groups.
fn work(each: &mut dyn FnMut(&Ring<Log>, &VecDeque<Write>)) -> Log {
    let log = Log::default();
    let mut ring = Ring::make(log.clone(), header()).unwrap();
    let mut there: VecDeque<Write> = VecDeque::new();
    // Lengths that fill blocks to the byte, that do not fit in the ring, and none; freed now and then, so that the ring goes
    // around several times.
    let lengths = [1, BLOCK as usize - HEAD, BLOCK as usize - HEAD + 1, 20_000, 0, 3 * BLOCK as usize, 70_000, 100, 40_000];
    for (index, len) in lengths.iter().cycle().take(60).enumerate() {
        let body = body(index as u64, *len);
        let number = ring.append(&body, 5).unwrap();
        there.push_back((number, body));
        each(&ring, &there);
        if index % 3 == 2 {
            let number = number - (index as u64 % 2);
            ring.free(number).unwrap();
            there.retain(|(there, _)| *there > number);
            each(&ring, &there);
        }
    }
    log
}

/// Goal: at each boundary of a write, the groups that were acknowledged are read, no other, and what is written next is
/// read too.
#[test]
fn each_boundary() {
    let mut seen = 0;
    work(&mut |ring, there| {
        let (mut again, groups) = open(ring.medium.1.borrow().clone());
        assert_eq!(groups, there.iter().map(|(_, body)| body.clone()).collect::<Vec<_>>());
        assert_eq!((again.head, again.next, again.used()), (ring.head, ring.next, ring.used()));
        again.append(b"next", 6).unwrap();
        assert_eq!(open(again.medium.1.borrow().clone()).1.last().unwrap(), b"next");
        seen += 1;
    });
    assert!(seen > 70);
}

/// Goal: the power goes in the middle of a write. Method: for each write, any prefix of its bytes, and any one of its
/// sectors alone, reaches the medium; then all that was acknowledged before is there, and of the rest nothing, or all that
/// the write completes.
#[test]
fn torn_writes() {
    // What must be there after each number of writes.
    let mut after: Vec<(usize, Vec<Vec<u8>>)> = Vec::new();
    let log = work(&mut |ring, there| {
        let writes = ring.medium.0.borrow().len();
        after.push((writes, there.iter().map(|(_, body)| body.clone()).collect()));
    });
    let writes = log.0.borrow();
    let mut bytes = Vec::new();
    let mut tried = 0;
    for (index, (at, write)) in writes.iter().enumerate() {
        let before = after.iter().rev().find(|(count, _)| *count <= index);
        let then = after.iter().find(|(count, _)| *count > index);
        let (Some((_, before)), Some((_, then))) = (before, then) else {
            apply(&mut bytes, *at, write);
            continue;
        };
        let mut cuts: Vec<(usize, usize)> = (0..write.len()).step_by(509).map(|len| (0, len)).collect();
        cuts.extend((0..150.min(write.len())).map(|len| (0, len)));
        cuts.extend((0..write.len() / 512).step_by(7).map(|sector| (sector * 512, sector * 512 + 512)));
        for (from, to) in cuts {
            let mut torn = bytes.clone();
            apply(&mut torn, at + from as u64, &write[from..to]);
            let groups = open(torn).1;
            // A header that frees may be lost: then more is there, never less.
            let holds = groups == *before || groups == *then;
            assert!(holds, "write {index} at {at}, {from}..{to}: {} groups", groups.len());
            tried += 1;
        }
        apply(&mut bytes, *at, write);
    }
    assert!(tried > 5_000);
}

/// Goal: what is no journal is none, and whatever is in one does not make the reader fall over.
#[test]
fn flips() {
    assert!(Ring::open(Log::default()).unwrap().is_none());
    let log = work(&mut |_, _| {});
    let whole = log.1.borrow().clone();
    for bit in (0..whole.len() * 8).step_by(4_099) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = Ring::open(Log(Rc::default(), Rc::new(RefCell::new(flipped))));
    }
}
