//! The addresses of all instructions and of all their operands in one run.

use std::collections::HashSet;
use std::fmt;

use iced_x86::{ConditionCode, FlowControl, Mnemonic};

use crate::blocks::{Block, Code, REGISTERS};
use crate::tracee::{Registers, Tracee, is_taken, stop};

/// A computation with secrets, run in a forked child.
pub trait Subject {
    /// Sets all secrets, to other values if `second` is set. Nothing else changes, and no memory
    /// moves.
    fn set_secrets(&mut self, second: bool);

    /// Runs the code that must not depend on the secrets, and allocates nothing.
    fn compute(&mut self);

    /// Returns true if the results of both runs are as they should be.
    fn is_sound(&self) -> bool;
}

/// The record of a run.
pub struct Trace {
    /// For each block, its address and the values of its [registers](Block::registers).
    words: Vec<u64>,
    pub instructions: usize,
    /// The operations that were executed.
    pub mnemonics: HashSet<Mnemonic>,
}

/// The first place at which two runs differ.
#[derive(Debug, PartialEq, Eq)]
pub enum Difference {
    /// After the block at this address, different instructions were executed.
    Branch(u64),
    /// In the block at this address, operands had different addresses.
    Address(u64),
}

/// Traces a computation with two different sets of secrets. Returns the first difference, and the
/// trace of the second run.
pub fn compare(subject: &mut dyn Subject) -> (Option<Difference>, Trace) {
    let tracee = start(subject, [false, true]);
    let mut code = Code::new();
    let first = Trace::record(&tracee, &mut code);
    let second = Trace::record(&tracee, &mut code);
    tracee.finish();
    (first.difference(&second, &mut code), second)
}

/// Starts a child that computes with these sets of secrets.
pub fn start(subject: &mut dyn Subject, runs: [bool; 2]) -> Tracee {
    // Whatever is done once in a process is done here.
    subject.set_secrets(!runs[0]);
    subject.compute();
    Tracee::start(|| {
        for second in runs {
            subject.set_secrets(second);
            compute_between_stops(subject);
        }
        assert!(subject.is_sound());
    })
}

/// One function, so that both runs are called from the same place.
#[inline(never)]
fn compute_between_stops(subject: &mut dyn Subject) {
    stop();
    subject.compute();
    stop();
}

impl Trace {
    /// Records what the child does until it stops itself for the second time.
    pub fn record(tracee: &Tracee, code: &mut Code) -> Self {
        let mut trace = Trace {
            words: Vec::new(),
            instructions: 0,
            mnemonics: HashSet::new(),
        };
        let mut seen = HashSet::new();
        tracee.go_on();
        let mut registers = tracee.registers();
        loop {
            let start = registers.rip;
            let block = code.block(start);
            trace.words.push(start);
            trace.words.extend(addresses(&block, &registers));
            trace.instructions += block.instructions.len();
            if seen.insert(start) {
                trace.mnemonics.extend(&block.mnemonics);
            }
            if !block.instructions.is_empty() {
                tracee.set_registers(&registers);
                tracee.run_to(block.end);
                registers = tracee.registers();
                assert_eq!(registers.rip, block.end + 1, "another breakpoint");
                registers.rip = block.end;
            }
            if block.next.mnemonic() == Mnemonic::Int3 {
                registers.rip = block.next.next_ip();
                tracee.set_registers(&registers);
                return trace;
            }
            if block.next.flow_control() != FlowControl::Next {
                trace.instructions += 1;
                decide(tracee, &block, &mut registers);
            }
        }
    }

    /// The addresses of all instructions before the one that ends the trace.
    pub fn addresses(&self, code: &mut Code) -> Vec<u64> {
        let mut addresses = Vec::new();
        let mut position = 0;
        while let Some(start) = self.words.get(position) {
            let block = code.block(*start);
            addresses.extend(&block.instructions);
            if block.next.flow_control() != FlowControl::Next {
                addresses.push(block.end);
            }
            position += 1 + block.registers.count_ones() as usize;
        }
        addresses.pop();
        addresses
    }

    fn difference(&self, other: &Trace, code: &mut Code) -> Option<Difference> {
        if self.words == other.words {
            return None;
        }
        let (mut position, mut previous) = (0, 0);
        while let (Some(start), Some(start2)) =
            (self.words.get(position), other.words.get(position))
        {
            if start != start2 {
                break;
            }
            let next = position + 1 + code.block(*start).registers.count_ones() as usize;
            if self.words[position..next] != other.words[position..next] {
                return Some(Difference::Address(*start));
            }
            (position, previous) = (next, *start);
        }
        Some(Difference::Branch(previous))
    }
}

/// The values of the registers that determine the addresses in a block.
fn addresses(block: &Block, registers: &Registers) -> impl Iterator<Item = u64> {
    let values = values(registers);
    (0..REGISTERS.len())
        .filter(|number| block.registers >> number & 1 == 1)
        .map(move |number| values[number])
}

/// Executes the instruction after a block.
fn decide(tracee: &Tracee, block: &Block, registers: &mut Registers) {
    let instruction = &block.next;
    match instruction.flow_control() {
        FlowControl::ConditionalBranch if instruction.condition_code() != ConditionCode::None => {
            registers.rip = if is_taken(instruction, registers.eflags) {
                instruction.near_branch_target()
            } else {
                instruction.next_ip()
            };
        }
        FlowControl::Return => {
            registers.rip = tracee.word(registers.rsp);
            registers.rsp = registers
                .rsp
                .wrapping_add_signed(i64::from(instruction.stack_pointer_increment()));
        }
        _ => {
            tracee.set_registers(registers);
            tracee.step();
            *registers = tracee.registers();
        }
    }
}

/// In the order of [`REGISTERS`].
pub fn values(registers: &Registers) -> [u64; 16] {
    let r = registers;
    [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12,
        r.r13, r.r14, r.r15,
    ]
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, address) = match self {
            Difference::Branch(address) => ("instructions depend on a secret after", address),
            Difference::Address(address) => ("an address depends on a secret in", address),
        };
        let in_file = address.wrapping_sub(image_base());
        write!(
            formatter,
            "{what} the block at {in_file:#x} of this test's executable \
             (objdump --start-address, addr2line)"
        )
    }
}

/// The address at which the first byte of this executable lies.
fn image_base() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process has memory");
    let (start, _) = maps.split_once('-').expect("a mapping");
    u64::from_str_radix(start, 16).expect("an address")
}
