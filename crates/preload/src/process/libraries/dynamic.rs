//! What the loader reads of a library or program: the dynamic section (System V ABI, chapter 5).

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_STACK: u32 = 0x6474_e551;
const HEADER_BYTES: usize = 56;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// The dynamic section of an ELF64 file of this byte order. The bytes are untrusted, and must not change meanwhile.
pub struct Dynamic<'a> {
    entries: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Dynamic<'a> {
    /// Of a whole file; `None` if it has none that makes sense.
    pub fn of(file: &'a [u8]) -> Option<Dynamic<'a>> {
        if !file.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let headers = headers(file)?.map(|(_, header)| header);
        let of_kind = |kind: u32| headers.clone().filter(move |header| header.starts_with(&kind.to_le_bytes()));
        let section = of_kind(PT_DYNAMIC).next()?;
        let entries = part(file, long(section, 8)?, long(section, 32)?)?;
        let strings = values(entries, DT_STRTAB).next()?;
        let behind = of_kind(PT_LOAD).find_map(|header| {
            let (offset, address, len) = (long(header, 8)?, long(header, 16)?, long(header, 32)?);
            let into = strings.checked_sub(address).filter(|&into| into < len)?;
            part(file, offset.checked_add(into)?, len - into)
        })?;
        Some(Dynamic { entries, strings: behind })
    }

    /// Names of the libraries that it needs, in order.
    pub fn needed(&self) -> impl Iterator<Item = &'a [u8]> {
        self.texts(DT_NEEDED)
    }

    /// Its own name.
    pub fn name(&self) -> Option<&'a [u8]> {
        self.texts(DT_SONAME).next()
    }

    /// The folders in which they are looked for: before those of `LD_LIBRARY_PATH`, and after.
    pub fn folders(&self) -> (&'a [u8], &'a [u8]) {
        match self.texts(DT_RUNPATH).next() {
            Some(after) => (b"", after),
            None => (self.texts(DT_RPATH).next().unwrap_or(b""), b""),
        }
    }

    fn texts(&self, tag: u64) -> impl Iterator<Item = &'a [u8]> {
        let strings = self.strings;
        values(self.entries, tag).filter_map(move |at| {
            let text = strings.get(usize::try_from(at).ok()?..)?;
            text.get(..text.iter().position(|&byte| byte == 0)?)
        })
    }
}

/// Gives a library that has no name (`DT_SONAME`) this one: libraries that need it are told by the loader that it is there
/// by names alone. An entry that is left for such things holds it, and words of the header that asks for a stack, of which
/// only the flags mean something. Nothing is done where there is no room.
pub fn give_name(file: &mut [u8], name: &[u8]) -> Option<()> {
    let dynamic = Dynamic::of(file)?;
    let len = dynamic.entries.len();
    let used = 16 * dynamic.entries.chunks_exact(16).position(|entry| long(entry, 0) == Some(0))?;
    let has_name = values(dynamic.entries, DT_SONAME).next().is_some();
    let strings = values(dynamic.entries, DT_STRTAB).next()?;
    if has_name || used + 32 > len || dynamic.entries[used..used + 32] != [0; 32] {
        return None;
    }
    let of_kind = |kind| headers(file)?.find(|(_, header)| header.starts_with(&u32::to_le_bytes(kind)));
    let (entry, stack) = (usize::try_from(long(of_kind(PT_DYNAMIC)?.1, 8)?).ok()? + used, of_kind(PT_GNU_STACK)?.0 + 8);
    let first = headers(file)?.map(|(_, header)| header).find(|header| header.starts_with(&PT_LOAD.to_le_bytes()))?;
    let address = (stack as u64).checked_sub(long(first, 8)?).filter(|&into| into + 40 <= long(first, 32).unwrap_or(0))?;
    let at = long(first, 16)?.wrapping_add(address).wrapping_sub(strings);
    let room = file.get_mut(stack..stack + 40).filter(|room| name.len() < room.len())?;
    room.fill(0);
    room[..name.len()].copy_from_slice(name);
    file.get_mut(entry..entry + 8)?.copy_from_slice(&DT_SONAME.to_le_bytes());
    file.get_mut(entry + 8..entry + 16)?.copy_from_slice(&at.to_le_bytes());
    Some(())
}

/// The program headers, and where each is.
fn headers(file: &[u8]) -> Option<impl Iterator<Item = (usize, &[u8])> + Clone> {
    let table = usize::try_from(long(file, 32)?).ok()?;
    let count = usize::from(u16::from_le_bytes(*file.get(56..)?.first_chunk()?));
    let headers = file.get(table..)?.chunks_exact(HEADER_BYTES).take(count).enumerate();
    Some(headers.map(move |(number, header)| (table + number * HEADER_BYTES, header)))
}

/// The values of all entries with this tag.
fn values(entries: &[u8], tag: u64) -> impl Iterator<Item = u64> {
    let pairs = entries.chunks_exact(16).map(|entry| (long(entry, 0).unwrap_or(0), long(entry, 8).unwrap_or(0)));
    pairs.take_while(|pair| pair.0 != 0).filter(move |pair| pair.0 == tag).map(|pair| pair.1)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn part(bytes: &[u8], from: u64, len: u64) -> Option<&[u8]> {
    let from = usize::try_from(from).ok()?;
    bytes.get(from..from.checked_add(usize::try_from(len).ok()?)?)
}
