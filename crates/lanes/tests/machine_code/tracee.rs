//! A child process that stops where its tracer wants it to.

use std::arch::asm;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{cell::Cell, io, ptr};

use iced_x86::{ConditionCode, Instruction};

pub type Registers = libc::user_regs_struct;

const BREAKPOINT: u8 = 0xcc;

/// A forked child, traced by the thread that forked it. It is killed when dropped.
pub struct Tracee {
    process: libc::pid_t,
    memory: File,
    is_ended: Cell<bool>,
}

/// Stops the calling process for its tracer.
#[inline(never)]
pub fn stop() {
    // SAFETY: the tracer continues after the trap; nothing is changed.
    unsafe { asm!("int3") };
}

impl Tracee {
    /// Forks a child that runs `work` when it goes on.
    pub fn start(work: impl FnOnce()) -> Self {
        // SAFETY: the child calls ptrace and `work`, which needs no other thread, and ends.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "fork: {}", io::Error::last_os_error());
        if process == 0 {
            // SAFETY: the parent is the tracer.
            let traced = unsafe { libc::ptrace(libc::PTRACE_TRACEME) };
            let work = || {
                stop();
                work();
            };
            let is_done = traced == 0 && catch_unwind(AssertUnwindSafe(work)).is_ok();
            // SAFETY: the child ends without running anything of the test harness.
            unsafe { libc::_exit(i32::from(!is_done)) };
        }
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .open(format!("/proc/{process}/mem"))
            .expect("a child's memory");
        let tracee = Tracee {
            process,
            memory,
            is_ended: Cell::new(false),
        };
        tracee.wait();
        tracee
    }

    /// Waits until the child stops at a breakpoint or after a step.
    ///
    /// # Panics
    /// If it ends, or stops for another reason.
    fn wait(&self) {
        let status = self.wait_for_status();
        let is_trap = libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP;
        assert!(
            is_trap,
            "the child did not stop at a breakpoint (is ptrace allowed?): {status:#x}"
        );
    }

    /// Lets the child run to its end.
    ///
    /// # Panics
    /// If it fails.
    pub fn finish(&self) {
        self.resume(libc::PTRACE_CONT);
        let status = self.wait_for_status();
        assert_eq!(status, 0, "the child failed");
    }

    /// Goes on until the child stops again.
    pub fn go_on(&self) {
        self.resume(libc::PTRACE_CONT);
        self.wait();
    }

    /// Executes one instruction.
    pub fn step(&self) {
        self.resume(libc::PTRACE_SINGLESTEP);
        self.wait();
    }

    /// Goes on until it comes to `address`, and stops just behind a breakpoint there.
    pub fn run_to(&self, address: u64) {
        let mut original = [0];
        self.memory
            .read_exact_at(&mut original, address)
            .expect("code can be read");
        self.write(address, BREAKPOINT);
        self.go_on();
        self.write(address, original[0]);
    }

    pub fn registers(&self) -> Registers {
        // SAFETY: the registers are integers, which may be zero.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel writes the registers of the stopped child.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_GETREGS,
                self.process,
                ptr::null_mut::<libc::c_void>(),
                &raw mut registers,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        registers
    }

    pub fn set_registers(&self, registers: &Registers) {
        // SAFETY: the kernel reads the registers and changes those of the stopped child.
        let result = unsafe {
            libc::ptrace(
                libc::PTRACE_SETREGS,
                self.process,
                ptr::null_mut::<libc::c_void>(),
                &raw const *registers,
            )
        };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    /// The eight bytes at an address of the child.
    pub fn word(&self, address: u64) -> u64 {
        let mut bytes = [0; 8];
        self.memory
            .read_exact_at(&mut bytes, address)
            .expect("an address of the child");
        u64::from_le_bytes(bytes)
    }

    fn write(&self, address: u64, byte: u8) {
        self.memory
            .write_all_at(&[byte], address)
            .expect("an address of the child");
    }

    fn resume(&self, request: libc::c_uint) {
        let none = ptr::null_mut::<libc::c_void>();
        // SAFETY: the child is stopped, and no signal is delivered to it.
        let result = unsafe { libc::ptrace(request, self.process, none, none) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }

    fn wait_for_status(&self) -> libc::c_int {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        let process = unsafe { libc::waitpid(self.process, &raw mut status, 0) };
        assert_eq!(process, self.process, "{}", io::Error::last_os_error());
        self.is_ended.set(!libc::WIFSTOPPED(status));
        status
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.is_ended.get() {
            return;
        }
        // SAFETY: the child is ours, it has not been waited for, and nobody else does that.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, ptr::null_mut(), 0);
        }
    }
}

/// Returns true if the branch is taken with these flags (Intel SDM volume 1, appendix B).
pub fn is_taken(branch: &Instruction, flags: u64) -> bool {
    let flag = |bit: u32| flags >> bit & 1 == 1;
    let (carry, parity, zero, sign, overflow) = (flag(0), flag(2), flag(6), flag(7), flag(11));
    match branch.condition_code() {
        ConditionCode::o => overflow,
        ConditionCode::no => !overflow,
        ConditionCode::b => carry,
        ConditionCode::ae => !carry,
        ConditionCode::e => zero,
        ConditionCode::ne => !zero,
        ConditionCode::be => carry || zero,
        ConditionCode::a => !carry && !zero,
        ConditionCode::s => sign,
        ConditionCode::ns => !sign,
        ConditionCode::p => parity,
        ConditionCode::np => !parity,
        ConditionCode::l => sign != overflow,
        ConditionCode::ge => sign == overflow,
        ConditionCode::le => zero || sign != overflow,
        ConditionCode::g => !zero && sign == overflow,
        ConditionCode::None => panic!("no condition: {branch:?}"),
    }
}
