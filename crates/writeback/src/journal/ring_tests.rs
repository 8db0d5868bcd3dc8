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

fn open_whole(bytes: Vec<u8>) -> (Ring<Log>, Vec<Vec<u8>>, End) {
    Ring::open(Log(Rc::default(), Rc::new(RefCell::new(bytes)))).unwrap().unwrap()
}

/// One that must not be called damaged.
fn open(bytes: Vec<u8>) -> (Ring<Log>, Vec<Vec<u8>>) {
    let (ring, groups, end) = open_whole(bytes);
    assert!(!matches!(end, End::Damaged(_)), "{end:?}");
    (ring, groups)
}

/// What the ring was asked, and what must be there after it: the first number and the groups.
fn work(each: &mut dyn FnMut(&Ring<Log>, &VecDeque<Write>)) -> Log {
    let log = Log::default();
    apply(&mut log.1.borrow_mut(), 0, &vec![0; (START + header().room) as usize]);
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
        if index % 4 == 1 {
            ring.confirm().unwrap();
            each(&ring, &there);
        }
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
    let mut bytes = vec![0; (START + header().room) as usize];
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
    let open = |bytes| Ring::open(Log(Rc::default(), Rc::new(RefCell::new(bytes))));
    assert!(open(Vec::new()).unwrap().is_none());
    assert!(open(vec![0; 100_000]).unwrap().is_none());
    assert_eq!(open(b"somebody's notes\n".to_vec()).unwrap_err().errno, Errno::EUCLEAN);
    let log = work(&mut |_, _| {});
    let whole = log.1.borrow().clone();
    for bit in (0..whole.len() * 8).step_by(4_099) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = open(flipped);
    }
}

/// A journal with some groups, the last of which is confirmed, or not.
fn with_groups(confirmed: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let log = Log::default();
    apply(&mut log.1.borrow_mut(), 0, &vec![0; (START + header().room) as usize]);
    let mut ring = Ring::make(log.clone(), header()).unwrap();
    // Three are below, the fourth goes around, and the last two do not fit.
    let lengths = [40_000, 30_000, 36_000, 30_000, 100, 5_000, 60_000, 10];
    for (index, len) in lengths.iter().enumerate() {
        ring.append(&body(index as u64, *len), 5).unwrap();
        if index < 3 {
            ring.free(index as u64 + 1).unwrap();
        }
    }
    assert!(ring.live.front().is_some_and(|live| live.room > blocks(30_000 + HEAD as u64)), "it does not go around");
    if confirmed {
        ring.confirm().unwrap();
    }
    let groups = (3..lengths.len()).map(|index| body(index as u64, lengths[index])).collect();
    (log.1.borrow().clone(), groups)
}

/// Opens a damaged journal, of which these groups were acknowledged; whether something is missing of them.
fn says(bytes: &[u8], groups: &[Vec<u8>], confirmed: bool, what: &str) -> bool {
    let opened = Ring::open(Log(Rc::default(), Rc::new(RefCell::new(bytes.to_vec()))));
    let Ok(Some((_, found, end))) = opened else {
        // Both headers are gone: an empty file of zeros is a journal in the making.
        assert!(opened.is_err() || bytes.iter().take(8192).all(|byte| *byte == 0), "{what}");
        return true;
    };
    // A header that frees may be lost: then groups come again that are below.
    let found = if found.len() > groups.len() { &found[1..] } else { &found[..] };
    let is_all = found == groups;
    let is_last = found.len() + 1 == groups.len() && !confirmed;
    assert!(groups.starts_with(found), "{what}: {} groups", found.len());
    assert!(is_all || is_last || matches!(end, End::Damaged(_)), "{what}: {} groups, {end:?}", found.len());
    !is_all
}

/// Goal: whatever happens to what was acknowledged, it is there, or its loss is said, and what is there is a beginning of
/// it. Method: bits flipped, sectors and blocks zeroed, the file cut, everywhere; with an end mark nothing is silent, and
/// without one only the last group may look torn, or never written.
#[test]
fn damage_is_said() {
    for confirmed in [true, false] {
        let (whole, groups) = with_groups(confirmed);
        let (_, found, end) = open_whole(whole.clone());
        assert_eq!((found == groups, end), (true, End::Clean));
        let mut said = 0;
        let mut try_all = |what: String, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            change(&mut bytes);
            said += usize::from(says(&bytes, &groups, confirmed, &what));
        };
        let heads = (0..whole.len() / 4096).flat_map(|at| (at * 32_768..at * 32_768 + 512).step_by(3));
        for bit in (0..whole.len() * 8).step_by(2_503).chain(heads) {
            try_all(format!("bit {bit}"), &|bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        }
        // One block at a time: the last group and the mark behind it, gone together, are an end.
        for size in [512, 4096] {
            for at in (0..whole.len() / size).map(|index| index * size) {
                try_all(format!("{size} zeros at {at}"), &|bytes| bytes[at..at + size].fill(0));
            }
        }
        for len in (0..whole.len()).step_by(1_021) {
            try_all(format!("cut at {len}"), &|bytes| bytes.truncate(len));
        }
        assert!(said > 500, "{said}");
    }
}

/// Goal: a file that ends anywhere is a journal with a header, damage, or none.
#[test]
fn files_of_any_length() {
    let log = Log::default();
    drop(Ring::make(log.clone(), header()).unwrap());
    let whole = log.1.borrow().clone();
    for len in 0..=whole.len() {
        let opened = Ring::open(Log(Rc::default(), Rc::new(RefCell::new(whole[..len].to_vec()))));
        assert_eq!(opened.is_ok_and(|ring| ring.is_some()), len >= BLOCK as usize, "{len} bytes");
    }
}
