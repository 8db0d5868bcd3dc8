//! The search: one pass over the code, then a window around each `syscall`.

use crate::{ID_BYTES, Site, Sites, WINDOW_MAX};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::HashSet;

/// How many instructions back the number may be loaded.
const LOOK_BACK: usize = 16;
/// A jump with a 32-bit distance.
const JUMP_BYTES: usize = 5;

/// The sites of the library in `file`, of calls that `wanted` names by number.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn find(file: &[u8], wanted: impl Fn(u16) -> bool) -> Result<Sites, String> {
    let build_id = build_id(file)?;
    let elf = object::File::parse(file).map_err(|error| error.to_string())?;
    if elf.architecture() != object::Architecture::X86_64 {
        return Err("not an x86-64 library".into());
    }
    let text = elf.section_by_name(".text").ok_or("it has no .text")?;
    let code = Text::new(text.data().map_err(|error| error.to_string())?, text.address(), &elf);
    let mut found = Sites { build_id, sites: Vec::new(), left_out: 0 };
    for (index, instruction) in code.instructions.iter().enumerate() {
        if instruction.code() != Code::Syscall {
            continue;
        }
        let number = code.number(index);
        match number {
            Some(number) if !wanted(number) => {}
            Some(number) => match code.window(index) {
                Some(window) => found.sites.push(code.site(window, index, number)),
                None => found.left_out += 1,
            },
            None => found.left_out += 1,
        }
    }
    Ok(found)
}

/// The build id of the library in `file`.
///
/// # Errors
/// What is wrong with the file, in words.
pub fn build_id(file: &[u8]) -> Result<Vec<u8>, String> {
    let elf = object::File::parse(file).map_err(|error| error.to_string())?;
    let id = elf.build_id().map_err(|error| error.to_string())?.ok_or("it has no build id")?;
    if id.len() > ID_BYTES { Err(format!("a build id of {} bytes", id.len())) } else { Ok(id.to_vec()) }
}

/// The code, and every address that something leads to.
struct Text<'a> {
    bytes: &'a [u8],
    base: u64,
    instructions: Vec<Instruction>,
    targets: HashSet<u64>,
}

impl<'a> Text<'a> {
    fn new(bytes: &'a [u8], base: u64, elf: &object::File) -> Text<'a> {
        let instructions: Vec<_> = Decoder::with_ip(64, bytes, base, DecoderOptions::NONE).into_iter().collect();
        let mut targets: HashSet<u64> =
            instructions.iter().filter(|i| is_direct_branch(i)).map(Instruction::near_branch_target).collect();
        // Addresses taken by code, exported ones, and those in tables of pointers.
        targets.extend(instructions.iter().filter(|i| i.is_ip_rel_memory_operand()).map(Instruction::ip_rel_memory_address));
        targets.extend(elf.dynamic_symbols().map(|symbol| symbol.address()));
        if let Some(relocations) = elf.dynamic_relocations() {
            targets.extend(relocations.map(|(_, relocation)| relocation.addend() as u64));
        }
        Text { bytes, base, instructions, targets }
    }

    fn is_target(&self, instruction: &Instruction) -> bool {
        self.targets.contains(&instruction.ip())
    }

    /// What `eax` holds at the `syscall`, if it is loaded just before it.
    fn number(&self, index: usize) -> Option<u16> {
        let mut later = &self.instructions[index];
        for instruction in self.instructions[index.saturating_sub(LOOK_BACK)..index].iter().rev() {
            if self.is_target(later) || instruction.flow_control() != FlowControl::Next {
                return None;
            }
            if instruction.op0_kind() == OpKind::Register && instruction.op0_register().full_register() == Register::RAX {
                return match instruction.code() {
                    Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 => u16::try_from(instruction.immediate32()).ok(),
                    Code::Xor_r32_rm32 | Code::Xor_rm32_r32 if instruction.op1_register() == Register::EAX => Some(0),
                    _ => None,
                };
            }
            later = instruction;
        }
        None
    }

    /// First and last instruction of the window around the `syscall` at `index`:
    /// the load of the number before it, if that will do; else what stands behind it.
    fn window(&self, index: usize) -> Option<(usize, usize)> {
        let choices = [(1, 0), (0, 1), (0, 2), (1, 1), (2, 0), (0, 3), (2, 1), (3, 0)];
        choices.into_iter().filter(|(before, _)| *before <= index).map(|(before, after)| (index - before, index + after)).find(
            |&(first, last)| {
                let Some(window) = self.instructions.get(first..=last) else { return false };
                let len: usize = window.iter().map(Instruction::len).sum();
                (JUMP_BYTES..=WINDOW_MAX).contains(&len)
                    && window.iter().enumerate().all(|(at, i)| first + at == index || is_movable(i))
                    && !window[1..].iter().any(|i| self.is_target(i))
            },
        )
    }

    fn site(&self, (first, last): (usize, usize), index: usize, number: u16) -> Site {
        let start = self.instructions[first].ip();
        let end = self.instructions[last].next_ip();
        Site {
            offset: start as u32,
            number,
            at: (self.instructions[index].ip() - start) as u8,
            bytes: self.bytes[(start - self.base) as usize..(end - self.base) as usize].to_vec(),
        }
    }
}

fn is_direct_branch(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64)
}

/// Whether an instruction does the same at another address.
fn is_movable(instruction: &Instruction) -> bool {
    !instruction.is_invalid()
        && instruction.flow_control() == FlowControl::Next
        && !instruction.is_ip_rel_memory_operand()
        && instruction.code() != Code::Syscall
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Text<'_> {
        let instructions: Vec<_> = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).into_iter().collect();
        let targets = instructions.iter().filter(|i| is_direct_branch(i)).map(Instruction::near_branch_target).collect();
        Text { bytes, base: 0x1000, instructions, targets }
    }

    /// Goal: the usual site is the load of the number and the call.
    #[test]
    fn load_and_call() {
        let text = code(&[0xb8, 2, 0, 0, 0, 0x0f, 5, 0xc3]);
        assert_eq!(text.number(1), Some(2));
        let site = text.site(text.window(1).unwrap(), 1, 2);
        assert_eq!((site.offset, site.at, site.bytes.len()), (0x1000, 5, 7));
    }

    /// Goal: a branch to the call itself takes another window, and the number is not known there.
    #[test]
    fn branched_to() {
        // 1000: mov eax,3 / 1005: syscall / 1007: cmp rax,-4096 / 100d: jne 1005
        let text = code(&[0xb8, 3, 0, 0, 0, 0x0f, 5, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x75, 0xf6]);
        assert_eq!(text.number(1), None);
        assert_eq!(text.window(1), Some((1, 2)));
    }

    /// Goal: what is relative to its own address is not moved.
    #[test]
    fn not_movable() {
        // syscall / lea rax,[rip+1] / ret
        let text = code(&[0x0f, 5, 0x48, 0x8d, 5, 1, 0, 0, 0, 0xc3]);
        assert_eq!(text.window(0), None);
    }

    /// Goal: the C library of this machine has a site for each of the calls that it makes inside itself.
    #[test]
    fn this_library() {
        let Ok(file) = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6") else {
            return eprintln!("skip sites of this machine's C library: not where Debian has it");
        };
        let sites = find(&file, |_| true).unwrap();
        for number in [0, 1, 3, 257, 262, 217] {
            assert!(sites.sites.iter().any(|site| site.number == number), "no site for call {number}");
        }
        assert!(sites.sites.len() > 300 && sites.left_out < 60, "{} sites, {} left out", sites.sites.len(), sites.left_out);
        assert_eq!(sites.encode().len(), 36 + crate::SITE_BYTES * sites.sites.len());
    }
}
