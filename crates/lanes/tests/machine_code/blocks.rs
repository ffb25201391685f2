//! Runs of instructions that follow each other without a decision.
//!
//! A [`Block`] begins at an address and goes on through direct jumps and calls. It ends before an
//! instruction that decides where to go, and before one whose memory operand depends on a register
//! that the block itself has loaded. So its instructions, and the registers' values at its start,
//! say which addresses it touches.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register,
};

/// General-purpose registers in the order of their numbers: rax is the first, rsp the fifth.
pub const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RSP,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

const RSP: u16 = 1 << 4;
const RCX: u16 = 1 << 1;

/// The most instructions in a block, so that a loop without an end has blocks with an end.
const LONGEST: usize = 50_000;

/// Instructions that are executed from the first to the last once the first is.
pub struct Block {
    /// The address of the instruction after the last.
    pub end: u64,
    /// The addresses of the instructions.
    pub instructions: Vec<u64>,
    /// The registers, one bit each, whose values at the start determine the memory operands.
    pub registers: u16,
    /// The operations of the instructions.
    pub mnemonics: HashSet<Mnemonic>,
    /// The instruction at `end`.
    pub next: Instruction,
}

/// The program's instructions, decoded once.
pub struct Code {
    memory: File,
    blocks: HashMap<u64, Rc<Block>>,
    information: InstructionInfoFactory,
}

/// For each register, the registers at the start of a block that its value is computed from. `None`
/// if it is computed from anything else.
type Origins = [Option<u16>; 16];

impl Code {
    pub fn new() -> Self {
        Code {
            memory: File::open("/proc/self/mem").expect("this process has memory"),
            blocks: HashMap::new(),
            information: InstructionInfoFactory::new(),
        }
    }

    /// The block that begins at `start`.
    pub fn block(&mut self, start: u64) -> Rc<Block> {
        if let Some(block) = self.blocks.get(&start) {
            return block.clone();
        }
        let block = Rc::new(self.find_block(start));
        self.blocks.insert(start, block.clone());
        block
    }

    /// The instruction at an address of this process's code, which forked children share.
    pub fn instruction(&self, address: u64) -> Instruction {
        let mut bytes = [0; 15];
        let length = self
            .memory
            .read_at(&mut bytes, address)
            .expect("code can be read");
        let mut decoder = Decoder::with_ip(
            64,
            &bytes[..length],
            address,
            DecoderOptions::NO_INVALID_CHECK,
        );
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid(), "no instruction at {address:#x}");
        instruction
    }

    fn find_block(&mut self, start: u64) -> Block {
        let mut origins: Origins = std::array::from_fn(|register| Some(1 << register));
        let mut registers = 0;
        let mut mnemonics = HashSet::new();
        let mut returns = Vec::new();
        let mut address = start;
        let mut instructions = Vec::new();
        loop {
            let instruction = self.instruction(address);
            let mut target = instruction.next_ip();
            let is_end = match instruction.flow_control() {
                FlowControl::Next => false,
                FlowControl::UnconditionalBranch => {
                    target = instruction.near_branch_target();
                    false
                }
                FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => {
                    returns.push(target);
                    target = instruction.near_branch_target();
                    false
                }
                FlowControl::Return => match returns.pop() {
                    Some(caller) => {
                        target = caller;
                        false
                    }
                    None => true,
                },
                _ => true,
            };
            let needed = self.needed_registers(&instruction, &origins);
            if is_end || needed.is_none() || instructions.len() == LONGEST {
                return Block {
                    end: address,
                    instructions,
                    registers,
                    mnemonics,
                    next: instruction,
                };
            }
            registers |= needed.unwrap_or(0);
            self.follow(&instruction, &mut origins);
            mnemonics.insert(instruction.mnemonic());
            instructions.push(address);
            address = target;
        }
    }

    /// The registers at the start of a block that determine the memory operands of an instruction.
    /// `None` if anything else does.
    fn needed_registers(&mut self, instruction: &Instruction, origins: &Origins) -> Option<u16> {
        let mut needed = Some(0);
        let mut need = |register: Register| {
            let number = number(register)
                .unwrap_or_else(|| panic!("an address in {register:?}: {instruction:?}"));
            needed = needed.zip(origins[number]).map(|(all, one)| all | one);
        };
        for memory in self.information.info(instruction).used_memory() {
            for register in [memory.base(), memory.index()] {
                if register != Register::None && register != Register::RIP {
                    need(register);
                }
            }
        }
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
            need(Register::RCX);
        }
        needed
    }

    /// Changes the origins as an instruction changes the registers.
    fn follow(&mut self, instruction: &Instruction, origins: &mut Origins) {
        let information = self.information.info(instruction);
        let mut source = Some(0);
        let mut written = 0_u16;
        for used in information.used_registers() {
            let (reads, writes) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite | OpAccess::CondWrite => (true, true),
                _ => (false, false),
            };
            let Some(number) = number(used.register()) else {
                if reads {
                    source = None;
                }
                continue;
            };
            // What is written to a part of a register leaves the rest of it.
            let is_part = used.register().size() < 4;
            if reads || writes && is_part {
                source = source.zip(origins[number]).map(|(all, one)| all | one);
            }
            written |= u16::from(writes) << number;
        }
        if !is_function_of_registers(instruction, information.used_memory().is_empty()) {
            source = None;
        }
        for (number, origin) in origins.iter_mut().enumerate() {
            // What a push, a pop or a call adds to the stack pointer is constant.
            let is_moved_by_constant = instruction.is_stack_instruction() && RSP == 1 << number;
            if written >> number & 1 == 1 && !is_moved_by_constant {
                *origin = source;
            }
        }
        if instruction.has_rep_prefix() || instruction.has_repne_prefix() {
            origins[RCX.trailing_zeros() as usize] = None;
        }
    }
}

/// Returns true if the result depends on the general-purpose registers that the instruction reads
/// and on nothing else.
fn is_function_of_registers(instruction: &Instruction, is_without_memory: bool) -> bool {
    let is_known = matches!(
        instruction.mnemonic(),
        Mnemonic::Add
            | Mnemonic::And
            | Mnemonic::Dec
            | Mnemonic::Imul
            | Mnemonic::Inc
            | Mnemonic::Lea
            | Mnemonic::Mov
            | Mnemonic::Movsxd
            | Mnemonic::Movzx
            | Mnemonic::Neg
            | Mnemonic::Or
            | Mnemonic::Sar
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sub
            | Mnemonic::Xor
    );
    is_known && is_without_memory
}

fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    REGISTERS.iter().position(|known| *known == full)
}
