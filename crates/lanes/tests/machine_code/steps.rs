//! A comparison of blocks with single steps, which rely on nothing but the processor.

use iced_x86::{InstructionInfoFactory, Mnemonic, Register};
use slipstream_lanes::Backend;

use crate::blocks::{Code, REGISTERS};
use crate::is_available;
use crate::trace::{Trace, start, values};
use crate::tracee::{Registers, Tracee};
use crate::x25519::Generation;

/// The addresses of an instruction and of its memory operands.
#[derive(PartialEq, Eq)]
struct Step {
    instruction: u64,
    operands: Vec<u64>,
}

#[test]
fn blocks_have_the_instructions_that_single_steps_execute() {
    if !is_available(Backend::Ifma) {
        return;
    }
    let mut code = Code::new();
    let tracee = start(&mut Generation::new(8), [true, false]);
    let trace = Trace::record(&tracee, &mut code);
    let steps = single_steps(&tracee, &code);
    tracee.finish();
    let executed: Vec<u64> = steps.iter().map(|step| step.instruction).collect();
    assert!(trace.addresses(&mut code) == executed);
}

#[test]
fn single_steps_have_the_same_addresses_with_other_secrets() {
    if !is_available(Backend::Ifma) {
        return;
    }
    let code = Code::new();
    let tracee = start(&mut Generation::new(1), [true, false]);
    let first = single_steps(&tracee, &code);
    let second = single_steps(&tracee, &code);
    tracee.finish();
    assert!(first.iter().map(|step| step.operands.len()).sum::<usize>() > 10_000);
    assert!(first == second);
}

/// Steps through the child until it stops itself for the second time.
fn single_steps(tracee: &Tracee, code: &Code) -> Vec<Step> {
    let mut information = InstructionInfoFactory::new();
    let mut steps = Vec::new();
    tracee.go_on();
    loop {
        let mut registers = tracee.registers();
        let instruction = code.instruction(registers.rip);
        if instruction.mnemonic() == Mnemonic::Int3 {
            registers.rip = instruction.next_ip();
            tracee.set_registers(&registers);
            return steps;
        }
        // A repeated instruction traps after each repetition.
        let is_again = instruction.has_rep_prefix()
            && steps
                .last()
                .is_some_and(|step: &Step| step.instruction == registers.rip);
        if is_again {
            tracee.step();
            continue;
        }
        let memory = information.info(&instruction).used_memory();
        steps.push(Step {
            instruction: registers.rip,
            operands: memory
                .iter()
                .filter_map(|memory| {
                    memory.virtual_address(0, |register, _, _| value(register, &registers))
                })
                .collect(),
        });
        tracee.step();
    }
}

fn value(register: Register, registers: &Registers) -> Option<u64> {
    let position = REGISTERS.iter().position(|known| *known == register);
    match register {
        Register::FS => Some(registers.fs_base),
        Register::GS => Some(registers.gs_base),
        Register::DS | Register::ES | Register::SS | Register::CS => Some(0),
        _ => position.map(|number| values(registers)[number]),
    }
}
