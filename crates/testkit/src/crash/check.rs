//! One state: is it recovered, whole, as expected, and usable?

use super::alike::{self, Changed, Image};
use super::explore::CLOCK;
use super::memory::{Machine, Memory};
use super::model::{ByNumber, Line, hash_of, mix};
use super::record::{Event, What};
use super::tree::{Entry, Tree};
use super::workload::{InPlace, NAMES};
use base::{Cx, Kind, NewNode, Node, SetAttr};
use engine::Fs;
use engine::process::memory::GENERATION;
use format::bucket::BUCKETS_MIN;
use format::layout::LINES_PER_BLOCK;
use pm::UserSlice;
use pm::record::Stored;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

/// How times are compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Times {
    /// As everything else.
    Exact,
    /// Each is one of those it has in the trees: a file that is written to is stamped without a record.
    Each,
    /// Each is one of the made-up clock's, not behind the latest in the trees: several records stamp the file, each as it is made.
    Between,
    /// Not at all: the trees have none.
    None,
}

/// What a state may look like to its users.
#[derive(Clone)]
pub struct Expect {
    /// One of these trees: the one before first, the one after last.
    pub trees: Vec<Rc<Tree>>,
    /// With these bytes old or new.
    pub in_place: Option<InPlace>,
    /// And times like this.
    pub times: Times,
}

impl Expect {
    /// Exactly this; with its times, if `timed`.
    pub fn exactly(tree: &Rc<Tree>, timed: bool) -> Expect {
        let times = if timed { Times::Exact } else { Times::None };
        Expect { trees: vec![Rc::clone(tree)], in_place: None, times }
    }

    /// A number that stands for it.
    pub fn id(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (&self.trees, self.times).hash(&mut hasher);
        self.in_place.map(|p| (p.name, p.from, p.to)).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether this tree is as it may be.
    pub fn accepts(&self, tree: &Tree) -> bool {
        // As a rule it is the same one, not only an equal one.
        if self.trees.iter().any(|expected| std::ptr::eq(&**expected, tree)) {
            return true;
        }
        if self.trees.iter().any(|expected| self.alike(expected, tree)) {
            return true;
        }
        let (Some(part), [first, .., last]) = (self.in_place, self.trees.as_slice()) else { return false };
        let data = |tree: &Tree| tree.0.iter().find(|e| e.path == NAMES[part.name].as_bytes()).map(|e| (e.same, e.data.clone()));
        let (Some((_, old)), Some((_, new)), Some((_, now))) = (data(first), data(last), data(tree)) else { return false };
        let end = part.to.min(old.len().min(new.len()).min(now.len()) as u64) as usize;
        let range = part.from as usize..end.max(part.from as usize);
        if range.clone().any(|i| now[i] != old[i] && now[i] != new[i]) {
            return false;
        }
        let settled = |tree: &Tree| {
            let mut tree = tree.clone();
            let same = data(&tree).map(|(same, _)| same);
            let parts = tree.0.iter_mut().filter(|e| Some(e.same) == same).filter_map(|e| e.data.get_mut(range.clone()));
            parts.for_each(|part| part.copy_from_slice(&new[range.clone()]));
            tree
        };
        let now = settled(tree);
        self.trees.iter().any(|expected| self.alike(&settled(expected), &now))
    }

    /// What is wrong with this tree.
    fn compare(&self, tree: &Tree) -> Result<(), String> {
        if self.accepts(tree) {
            return Ok(());
        }
        let difference = |other: Option<&Rc<Tree>>| other.map_or_else(String::new, |other| other.difference(tree));
        let (last, first) = (difference(self.trees.last()), difference(self.trees.first()));
        Err(format!("the tree is another: against after: {last} against before: {first}"))
    }

    /// Whether two trees are the same, as far as times are compared.
    fn alike(&self, expected: &Tree, tree: &Tree) -> bool {
        let has = |entry: &Entry, which: usize| {
            let same = |e: &&Entry| e.path == entry.path && e.times[which] == entry.times[which];
            self.trees.iter().any(|tree| tree.0.iter().any(|e| same(&e)))
        };
        let is_between = |entry: &Entry, which: usize| {
            let all = self.trees.iter().filter_map(|tree| tree.0.iter().find(|e| e.path == entry.path));
            let latest = all.map(|e| e.times[which]).max();
            CLOCK <= entry.times[which] && Some(entry.times[which]) <= latest
        };
        match self.times {
            Times::Exact | Times::None => expected == tree,
            Times::Each | Times::Between => {
                let may = |entry: &Entry, which| match self.times {
                    Times::Between => is_between(entry, which),
                    _ => has(entry, which),
                };
                tree.0.iter().all(|entry| may(entry, 0) && may(entry, 1))
                    && expected.clone().kept(false) == tree.clone().kept(false)
            }
        }
    }
}

/// A machine on which states are tried. While idle its image equals what the medium certainly holds.
///
/// What is asked of a recovered image depends on nothing but its bytes: it is asked once. A state whose recovery ends
/// in an image that was right before has only its tree compared with what is expected of this one. Nor does it depend on
/// bytes that nothing refers to: where that may be taken for granted ([`Given::alike`]), images that differ in these alone
/// are one, before recovery and after it.
pub struct Bench {
    /// The machine.
    pub machine: Machine,
    /// Images that are right, states and what recovery made of them, by their numbers.
    right: ByNumber<Right>,
    /// Their trees: one of each.
    trees: HashSet<Rc<Tree>>,
}

/// An image that is right but for its tree.
#[derive(Clone)]
struct Right {
    /// The tree, as it was compared.
    tree: Rc<Tree>,
    /// Whether the checker looked at everything once more after use.
    whole: bool,
}

/// What is tried.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// What the medium certainly holds, ...
    pub certain: &'a Memory,
    /// ... the lines that hold something else, in order, ...
    pub overlay: &'a [(u32, Line)],
    /// ... and the number of both together: the same for the same bytes.
    pub hash: u64,
    /// Where images that are alike are one: the lines in which what is certain differs from what all began with.
    pub alike: Option<&'a Changed>,
}

impl Given<'_> {
    fn line(&self, number: u32) -> Line {
        let over = self.overlay.binary_search_by_key(&number, |(other, _)| *other);
        over.map_or_else(|_| self.certain.get(u64::from(number) * 64), |at| self.overlay[at].1)
    }

    /// By how much a line's share changes if it becomes `line`, from what is certain.
    fn change(&self, number: u32, line: &Line) -> (u32, u64) {
        (number, hash_of(number, &self.certain.get(u64::from(number) * 64)) ^ hash_of(number, line))
    }

    /// The number of this state, and of all that are alike.
    fn number(&self, changed: &Changed) -> u64 {
        self.image(changed, &self.over()).alike()
    }

    fn image<'b>(&'b self, changed: &'b Changed, over: &'b [(u32, u64)]) -> Image<'b, impl Fn(u32) -> Line> {
        Image { number: self.hash, changed, over, line: |number| self.line(number) }
    }

    fn over(&self) -> Vec<(u32, u64)> {
        self.overlay.iter().map(|(number, line)| self.change(*number, line)).collect()
    }

    /// A state alike to this one that has rubbish wherever it can: the lines that hold something else, and its number.
    pub fn soiled(&self, seed: u64) -> Option<(Vec<(u32, Line)>, u64)> {
        let idle = self.image(self.alike?, &self.over()).idle_lines();
        let mut lines: BTreeMap<u32, Line> = self.overlay.iter().copied().collect();
        lines.extend(idle.into_iter().map(|number| (number, alike::soiled(number, &self.line(number), seed))));
        let soiled = Given { overlay: &lines.into_iter().collect::<Vec<_>>(), ..*self };
        let shares = self.over().into_iter().chain(soiled.over());
        Some((soiled.overlay.to_vec(), shares.fold(self.hash, |hash, (_, share)| hash ^ share)))
    }

    /// The number of `image`, which is this after the stores of `events`.
    fn number_after(&self, image: &Memory, events: &[Event]) -> u64 {
        let stored = events.iter().filter_map(|event| match event.what {
            What::Store { offset, .. } => Some(offset / 64),
            _ => None,
        });
        let lines: BTreeSet<u32> = stored.chain(self.overlay.iter().map(|(number, _)| *number)).collect();
        let line = |number: u32| image.get(u64::from(number) * 64);
        let over: Vec<(u32, u64)> = lines.into_iter().map(|number| self.change(number, &line(number))).collect();
        let before = self.overlay.iter().fold(self.hash, |hash, (number, line)| hash ^ self.change(*number, line).1);
        let number = over.iter().fold(before, |hash, (_, change)| hash ^ change);
        self.alike.map_or(number, |changed| Image { number, changed, over: &over, line }.alike())
    }
}

/// What tells the number of a state from that of a recovered image.
const STATE: u64 = 0x0053_7461_7465;

/// What came of a state.
pub struct Tried {
    /// What is wrong with it.
    pub problem: Option<String>,
    /// What recovery did.
    pub recovery: Vec<Event>,
    /// Whether the image that it left was checked and used; else it was right before.
    pub used: bool,
}

impl Bench {
    /// A bench with nothing on it.
    pub fn new(machine: Machine) -> Bench {
        Bench { machine, right: ByNumber::default(), trees: HashSet::new() }
    }

    /// The one tree that is kept of those that equal this one.
    pub fn one_of(&mut self, tree: Tree) -> Rc<Tree> {
        if let Some(tree) = self.trees.get(&tree) {
            return Rc::clone(tree);
        }
        let tree = Rc::new(tree);
        self.trees.insert(Rc::clone(&tree));
        tree
    }

    /// The tree of a state alike to this one that was found right.
    pub fn answer(&self, given: &Given, expect: &Expect, whole: bool) -> Option<&Rc<Tree>> {
        let number = given.number(given.alike?);
        let right = self.right.get(&mix(number ^ STATE ^ timed(expect)))?;
        (right.whole || !whole).then_some(&right.tree)
    }

    /// Tries a state, and puts everything back.
    /// `whole`: once more after use the checker looks at everything; else only at what the lanes count.
    /// `afresh`: whatever was right before.
    pub fn attempt(&mut self, given: &Given, expect: &Expect, whole: bool, afresh: bool) -> Tried {
        self.machine.log.held().events.clear();
        for (number, line) in given.overlay {
            self.machine.image.put(u64::from(*number) * 64, line);
        }
        self.machine.cut();
        let mut recovery = Vec::new();
        let mut used = false;
        let mut right = self.judge(given, expect, (whole, afresh), &mut recovery, &mut used);
        if let (Ok(now), Some(changed)) = (&right, given.alike) {
            let number = mix(given.number(changed) ^ STATE ^ timed(expect));
            right = self.remember(number, now.clone());
        }
        let problem = right.err();
        let machine = &self.machine;
        let undo = |number: u32| {
            let at = u64::from(number) * 64;
            machine.image.put(at, &given.certain.get::<64>(at));
        };
        machine.log.brief(false);
        machine.log.touched(undo);
        for event in machine.log.take().iter().chain(&recovery) {
            if let What::Store { offset, .. } = event.what {
                undo(offset / 64);
            }
        }
        given.overlay.iter().for_each(|(number, _)| undo(*number));
        Tried { problem, recovery, used }
    }

    /// An image with this number is right; so was whatever was remembered of it, or what was taken for alike is not.
    fn remember(&mut self, number: u64, right: Right) -> Result<Right, String> {
        if let Some(before) = self.right.get(&number)
            && before.tree != right.tree
        {
            return Err(format!("one that should be alike has another tree: {}", before.tree.difference(&right.tree)));
        }
        let whole = self.right.get(&number).is_some_and(|before| before.whole);
        self.right.insert(number, Right { whole: whole || right.whole, ..right.clone() });
        Ok(right)
    }

    fn judge(
        &mut self,
        given: &Given,
        expect: &Expect,
        (whole, afresh): (bool, bool),
        recovery: &mut Vec<Event>,
        used: &mut bool,
    ) -> Result<Right, String> {
        let machine = &self.machine;
        machine.attach(0).map_err(|error| format!("recovery fails: {error}"))?;
        *recovery = machine.log.take();
        let number = mix(given.number_after(&machine.image, recovery) ^ timed(expect));
        if let Some(right) = self.right.get(&number)
            && (right.whole || !whole)
            && !afresh
        {
            expect.compare(&right.tree)?;
            return Ok(right.clone());
        }
        *used = true;
        let tree = self.used(expect, timed(expect) != 0, whole)?;
        let tree = self.one_of(tree);
        self.remember(number, Right { tree, whole })
    }

    /// The tree of an image that has just been recovered, which is then used and emptied.
    fn used(&self, expect: &Expect, timed: bool, whole: bool) -> Result<Tree, String> {
        let machine = &self.machine;
        machine.cut();
        let fs = machine.attach(0).map_err(|error| format!("a second recovery fails: {error}"))?;
        self.nothing_but_generation()?;
        machine.log.brief(true);
        let cx = machine.cx(0);
        let report = engine::check::examine(fs);
        if let Some(issue) = report.issues.first() {
            return Err(format!("the checker finds {issue}"));
        }
        if report.orphans != 0 {
            return Err(format!("{} orphans are left", report.orphans));
        }
        let tree = Tree::read(fs, &cx)?.kept(timed);
        expect.compare(&tree)?;
        use_it(fs, &cx, &tree)?;
        if whole { nothing_is_left(fs) } else { nothing_is_counted(fs) }?;
        Ok(tree)
    }

    /// Recovering again changes the generation and nothing else.
    fn nothing_but_generation(&self) -> Result<(), String> {
        let held = self.machine.log.held();
        let other = held.events.iter().find_map(|event| match event.what {
            What::Store { offset, how, .. } if u64::from(offset) != GENERATION && how != Stored::Volatile => {
                Some((offset, event.site))
            }
            _ => None,
        });
        other.map_or(Ok(()), |(offset, site)| Err(format!("a second recovery stores at {offset:#x} ({site})")))
    }
}

/// Whether times are compared: another question, another answer.
fn timed(expect: &Expect) -> u64 {
    u64::from(expect.times != Times::None)
}

/// Works with an image, removes everything, and sees that all space is free again.
fn use_it(fs: &Fs, cx: &Cx, tree: &Tree) -> Result<(), String> {
    let mut nodes: Vec<(Node, Node, &[u8], Kind)> = Vec::new();
    let mut directories: Vec<(&[u8], Node)> = vec![(b"", fs.root_node())];
    let failed = |what: &str, error: base::Error| format!("{what} fails afterwards: {error:?}");
    for entry in tree.0.iter().skip(1) {
        let split = entry.path.iter().rposition(|byte| *byte == b'/');
        let (above, name) = split.map_or((&[][..], &entry.path[..]), |at| (&entry.path[..at], &entry.path[at + 1..]));
        let dir = directories.iter().find(|(path, _)| *path == above).map(|d| d.1).ok_or("a name without a directory")?;
        let node = fs.lookup(cx, dir, name).map_err(|error| failed("lookup", error))?;
        let kind = Kind::from_dt(entry.kind).ok_or("a kind that is none")?;
        if fs.is_frozen(node) == Ok(true) {
            fs.freeze(cx, node, false).map_err(|error| failed("making it free", error))?;
        }
        if kind == Kind::Directory {
            directories.push((&entry.path, node));
        } else if kind == Kind::Regular {
            extend(fs, cx, node, entry.data.len() as u64)?;
        }
        nodes.push((dir, node, name, kind));
    }
    let (file, below) = (NewNode { kind: Kind::Regular, mode: 0o600, rdev: 0, target: b"" }, b"~below");
    let directory = NewNode { kind: Kind::Directory, mode: 0o700, ..file };
    for (_, dir) in &directories {
        let node = fs.create(cx, *dir, b"~new", &file).map_err(|error| failed("create", error))?;
        fs.write(cx, node, None, &[UserSlice::from_ref(b"written")]).map_err(|error| failed("write", error))?;
        let inner = fs.create(cx, *dir, b"~dir", &directory).map_err(|error| failed("mkdir", error))?;
        fs.rename(cx, *dir, b"~new", inner, below, base::RenameMode::Replace).map_err(|error| failed("rename", error))?;
        fs.unlink(cx, inner, below).map_err(|error| failed("unlink", error))?;
        fs.rmdir(cx, *dir, b"~dir").map_err(|error| failed("rmdir", error))?;
    }
    for (dir, _, name, kind) in nodes.iter().rev() {
        let removed = if *kind == Kind::Directory { fs.rmdir(cx, *dir, name) } else { fs.unlink(cx, *dir, name) };
        removed.map_err(|error| failed("removal", error))?;
    }
    Ok(())
}

/// Lines in use when all is removed: the root directory keeps its block of slots, because it has had names.
const FRESH: u64 = BUCKETS_MIN + 1 + LINES_PER_BLOCK;

/// After use and removal of everything the image is whole, and all space is free again.
fn nothing_is_left(fs: &Fs) -> Result<(), String> {
    let report = engine::check::examine(fs);
    if let Some(issue) = report.issues.first() {
        return Err(format!("after use and removal the checker finds {issue}"));
    }
    all_free(report.lines_used, report.files)
}

/// The same by what the lanes count, which the first check has compared with what there is.
fn nothing_is_counted(fs: &Fs) -> Result<(), String> {
    let (lines, files) = engine::check::counted(fs);
    all_free(lines, files)
}

fn all_free(lines: u64, files: u64) -> Result<(), String> {
    if (lines, files) == (FRESH, 1) {
        return Ok(());
    }
    Err(format!("when all is removed {lines} lines and {files} inodes are in use, not {FRESH} and 1"))
}

/// A file made longer reads as zeros where it was not.
fn extend(fs: &Fs, cx: &Cx, node: Node, size: u64) -> Result<(), String> {
    let change = SetAttr { size: Some(size + 5000), ..Default::default() };
    fs.set_attr(cx, node, &change).map_err(|error| format!("truncate fails afterwards: {error:?}"))?;
    let mut rest = [0xeeu8; 5000];
    let read = fs
        .read(cx, node, size, &[UserSlice::from_mut(&mut rest)])
        .map_err(|error| format!("read fails afterwards: {error:?}"))?;
    if read != rest.len() || rest.iter().any(|byte| *byte != 0) {
        return Err(format!("a file of {size} bytes made longer shows what was beyond its end"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::explore::{Effort, Explorer, Media};
    use super::super::workload::{self, Start};
    use super::*;

    /// Goal: a tree that is another is said to be, whatever is missing from it. Method: bytes written in place, and a
    /// file that ends before them, in the middle of them, behind them.
    #[test]
    fn a_file_too_short_is_another_tree() {
        let file = |data: Vec<u8>, links: u64| {
            let (path, kind) = (NAMES[0].as_bytes().to_vec(), 8);
            Rc::new(Tree(vec![Entry {
                path,
                kind,
                words: [0, 0, 0, links, 0],
                times: [0; 2],
                same: 0,
                data,
                xattrs: Vec::new(),
            }]))
        };
        let (old, new) = (file(vec![1; 12], 1), file([[1; 8], [2; 8]].concat(), 1));
        let in_place = Some(InPlace { name: 0, from: 8, to: 12 });
        let expect = Expect { trees: vec![old, new], in_place, times: Times::None };
        for (data, fine) in [(4, false), (8, false), (10, false), (12, true), (16, false)] {
            // In the middle of it, a byte is new and one old.
            let bytes = (0..data).map(|at| if at == 9 { 2 } else { 1 }).collect();
            assert_eq!(expect.compare(&file(bytes, 1)).is_ok(), fine, "{data} bytes");
        }
        assert!(expect.compare(&file(vec![1; 12], 2)).is_err());
    }

    /// Goal: what is remembered of an image answers for that image only, and for no more than was asked.
    /// Method: an image, with the tree it has and with another one; the same asked more of; one with another byte.
    #[test]
    fn an_image_is_remembered_not_its_answer() {
        let _clock = super::super::clock_is_ours();
        let mut explorer = Explorer::new(Media::Power, Start::Some, Effort::default());
        let own = explorer.first_tree();
        let other = explorer.tree_after(&workload::parse("chmod(foo)").map_or_else(Vec::new, |op| vec![op])).expect("a tree");
        let (base, bench) = (&explorer.base, &mut explorer.bench);
        let mut asked = |overlay: &[(u32, Line)], tree: &Rc<Tree>, whole: bool| {
            let change = |(at, line): &(u32, Line)| hash_of(*at, &base.get(u64::from(*at) * 64)) ^ hash_of(*at, line);
            let given = Given { certain: base, overlay, hash: overlay.iter().map(change).fold(0, |a, b| a ^ b), alike: None };
            let tried = bench.attempt(&given, &Expect::exactly(tree, false), whole, false);
            (tried.problem.is_none(), tried.used)
        };
        assert_eq!(asked(&[], &other, false), (false, true));
        assert_eq!(asked(&[], &own, false), (true, true));
        assert_eq!(asked(&[], &own, false), (true, false));
        assert_eq!(asked(&[], &other, false), (false, false));
        assert_eq!(asked(&[], &own, true), (true, true));
        assert_eq!(asked(&[], &own, true), (true, false));
        // A byte of foo's contents.
        let data = &own.0.iter().find(|entry| entry.path == b"foo").expect("foo").data;
        let at = base.bytes().chunks_exact(64).position(|line| line == &data[..64]).expect("its first line") as u32;
        let mut line: Line = base.get(u64::from(at) * 64);
        line[5] ^= 1;
        assert_eq!(asked(&[(at, line)], &own, false), (false, true));
        assert_eq!(asked(&[], &own, false), (true, false));
    }
}
