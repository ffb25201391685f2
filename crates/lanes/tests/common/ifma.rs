//! IFMA on CPUs that have AVX-512F but no IFMA. The real machine code runs, and a SIGILL handler
//! emulates the two instructions that the CPU lacks, `vpmadd52luq` and `vpmadd52huq` on 512-bit
//! registers.

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::sync::OnceLock;

use slipstream_lanes::{Backend, assume_available};

/// Makes `Backend::Ifma` available, natively or by emulation. Returns false, and says so, if
/// neither is possible.
pub fn provide() -> bool {
    static PROVIDED: OnceLock<bool> = OnceLock::new();
    *PROVIDED.get_or_init(|| {
        if Backend::Ifma.is_available() {
            println!("IFMA: native");
            return true;
        }
        if !Backend::Avx512.is_available() {
            println!("IFMA: skipped, this CPU has no AVX-512F to emulate it on");
            return false;
        }
        install();
        // SAFETY: the CPU has AVX-512F, and its missing instructions are emulated from now on.
        unsafe {
            assert_emulation_works();
            assume_available();
        }
        println!("IFMA: emulated");
        true
    })
}

/// The offsets, in bytes, of the parts of the vector registers in the signal frame's XSAVE area.
struct Layout {
    ymm_high: usize,
    mask: usize,
    zmm_high: usize,
    zmm_upper_half: usize,
}

static LAYOUT: OnceLock<Layout> = OnceLock::new();

fn install() {
    // Intel SDM volume 1, section 13.2: leaf 0xD, sub-leaf i, EBX is the offset of state component
    // i.
    let offset = |component| __cpuid_count(0xd, component).ebx as usize;
    LAYOUT.get_or_init(|| Layout {
        ymm_high: offset(2),
        mask: offset(5),
        zmm_high: offset(6),
        zmm_upper_half: offset(7),
    });
    // SAFETY: the action is fully initialised; the handler has the signature that SA_SIGINFO asks
    // for and touches nothing but its arguments and an initialised static.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_illegal_instruction as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()),
            0
        );
    }
}

extern "C" fn on_illegal_instruction(
    _signal: libc::c_int,
    _info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a `ucontext_t` with the interrupted thread's registers, whose
    // `fpregs` points to the XSAVE area; both are ours until the handler returns. The instruction's
    // bytes are readable up to its end, and every EVEX instruction has at least six bytes.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let mut frame = Frame {
            registers: &mut context.uc_mcontext.gregs,
            area: context.uc_mcontext.fpregs.cast(),
            layout: LAYOUT.get().expect("installed"),
        };
        if frame.emulate().is_none() {
            // Another instruction: it traps again, without the handler, and ends the process.
            libc::signal(libc::SIGILL, libc::SIG_DFL);
        }
    }
}

/// The registers of an interrupted thread.
struct Frame<'a> {
    registers: &'a mut [i64; 23],
    area: *mut u8,
    layout: &'a Layout,
}

impl Frame<'_> {
    /// Emulates the instruction at the instruction pointer and steps over it. `None` if it is
    /// neither of the two.
    ///
    /// # Safety
    /// The frame is that of a signal handler, and the instruction has six readable bytes.
    unsafe fn emulate(&mut self) -> Option<()> {
        let start = self.registers[libc::REG_RIP as usize] as *const u8;
        // SAFETY: by the contract of this function.
        let bytes = unsafe { start.cast::<[u8; 6]>().read() };
        let [0x62, p0, p1, p2, opcode, modrm] = bytes else {
            return None;
        };
        // Intel SDM volume 2, section 2.7: map 0F38, W1, prefix 66, 512 bits.
        let is_ours = p0 & 0x0f == 0x02 && p1 & 0x87 == 0x85 && p2 & 0x60 == 0x40;
        let high = match opcode {
            0xb4 if is_ours => false,
            0xb5 if is_ours => true,
            _ => return None,
        };
        let inverted =
            |byte: u8, bit: u8, weight: usize| usize::from(byte >> bit & 1 == 0) * weight;
        let modrm_reg = usize::from(modrm >> 3 & 7);
        let destination = modrm_reg + inverted(p0, 7, 8) + inverted(p0, 4, 16);
        let first = usize::from(!p1 >> 3 & 15) + inverted(p2, 3, 16);
        // SAFETY: this is an EVEX instruction, whose length and operands follow from its bytes; the
        // program's memory operands are readable, or the CPU would fault too.
        let (second, length) = unsafe { self.second_operand(start, [p0, p2, modrm]) };
        let writes = match p2 & 7 {
            0 => 0xff,
            // SAFETY: by the contract of this function.
            number => unsafe { self.mask(usize::from(number)) },
        };
        let zeroes = p2 & 0x80 != 0;

        // SAFETY: by the contract of this function.
        unsafe {
            let mut sum = self.vector(destination);
            let first = self.vector(first);
            for lane in 0..8 {
                if writes >> lane & 1 == 1 {
                    let digit = |value: u64| u128::from(value & ((1 << 52) - 1));
                    let product = digit(first[lane]) * digit(second[lane]);
                    let half = if high {
                        product >> 52
                    } else {
                        product & ((1 << 52) - 1)
                    };
                    sum[lane] = sum[lane].wrapping_add(half as u64);
                } else if zeroes {
                    sum[lane] = 0;
                }
            }
            self.set_vector(destination, sum);
        }
        self.registers[libc::REG_RIP as usize] += length as i64;
        Some(())
    }

    /// The register or memory operand, and the length of the instruction in bytes.
    unsafe fn second_operand(
        &self,
        start: *const u8,
        [p0, p2, modrm]: [u8; 3],
    ) -> ([u64; 8], usize) {
        let inverted =
            |byte: u8, bit: u8, weight: usize| usize::from(byte >> bit & 1 == 0) * weight;
        let rm = usize::from(modrm & 7);
        if modrm >> 6 == 3 {
            let number = rm + inverted(p0, 5, 8) + inverted(p0, 6, 16);
            // SAFETY: by the contract of `emulate`.
            return (unsafe { self.vector(number) }, 6);
        }
        let is_broadcast = p2 & 0x10 != 0;
        let mut length = 6;
        let mut address = 0_i64;
        let mut has_base = true;
        let mut base = rm + inverted(p0, 5, 8);
        if rm == 4 {
            // SAFETY: a memory operand with this ModRM has a SIB byte.
            let sib = unsafe { start.add(length).read() };
            length += 1;
            let index = usize::from(sib >> 3 & 7) + inverted(p0, 6, 8);
            if index != 4 {
                address += self.general_register(index) << (sib >> 6);
            }
            base = usize::from(sib & 7) + inverted(p0, 5, 8);
            has_base = !(sib & 7 == 5 && modrm >> 6 == 0);
        }
        let is_relative = rm == 5 && modrm >> 6 == 0;
        // SAFETY: the displacement belongs to the instruction.
        let displacement = unsafe {
            match modrm >> 6 {
                1 => {
                    let scale = if is_broadcast { 8 } else { 64 };
                    let displacement = start.add(length).cast::<i8>().read();
                    length += 1;
                    i64::from(displacement) * scale
                }
                0 if has_base && !is_relative => 0,
                _ => {
                    let displacement = start.add(length).cast::<i32>().read_unaligned();
                    length += 4;
                    i64::from(displacement)
                }
            }
        };
        if is_relative {
            address += start as i64 + length as i64;
        } else if has_base {
            address += self.general_register(base);
        }
        let operand = (address + displacement) as *const u64;
        // SAFETY: the program reads this memory.
        let lanes = unsafe {
            if is_broadcast {
                [operand.read_unaligned(); 8]
            } else {
                operand.cast::<[u64; 8]>().read_unaligned()
            }
        };
        (lanes, length)
    }

    /// The general register with the number that instructions use.
    fn general_register(&self, number: usize) -> i64 {
        use libc::*;
        let register = [
            REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
            REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15,
        ][number];
        self.registers[register as usize]
    }

    /// The parts of vector register `number`: state component, offset in the area, first lane,
    /// lanes.
    fn parts(&self, number: usize) -> Vec4 {
        if number < 16 {
            Vec4([
                (1, 160 + 16 * number, 0, 2),
                (2, self.layout.ymm_high + 16 * number, 2, 2),
                (6, self.layout.zmm_high + 32 * number, 4, 4),
            ])
        } else {
            let offset = self.layout.zmm_upper_half + 64 * (number - 16);
            Vec4([(7, offset, 0, 8), (7, offset, 0, 0), (7, offset, 0, 0)])
        }
    }

    /// # Safety
    /// The area is that of a signal frame.
    unsafe fn vector(&self, number: usize) -> [u64; 8] {
        let mut lanes = [0; 8];
        for (component, offset, first, count) in self.parts(number).0 {
            // SAFETY: the offsets are those of the CPU's layout. A component that is not in use is
            // zero, whatever its memory holds.
            unsafe {
                if *self.in_use() >> component & 1 == 1 {
                    for (index, lane) in lanes[first..first + count].iter_mut().enumerate() {
                        *lane = self
                            .area
                            .add(offset + 8 * index)
                            .cast::<u64>()
                            .read_unaligned();
                    }
                }
            }
        }
        lanes
    }

    /// # Safety
    /// As for [`Frame::vector`].
    unsafe fn set_vector(&mut self, number: usize, lanes: [u64; 8]) {
        for (component, offset, first, count) in self.parts(number).0 {
            // SAFETY: as in `vector`. A component that was not in use is cleared first.
            unsafe {
                if *self.in_use() >> component & 1 == 0 {
                    let (start, length) = match component {
                        1 => (160, 256),
                        2 => (self.layout.ymm_high, 256),
                        6 => (self.layout.zmm_high, 512),
                        _ => (self.layout.zmm_upper_half, 1024),
                    };
                    self.area.add(start).write_bytes(0, length);
                    *self.in_use() |= 1 << component;
                }
                for (index, lane) in lanes[first..first + count].iter().enumerate() {
                    self.area
                        .add(offset + 8 * index)
                        .cast::<u64>()
                        .write_unaligned(*lane);
                }
            }
        }
    }

    /// # Safety
    /// As for [`Frame::vector`].
    unsafe fn mask(&self, number: usize) -> u64 {
        // SAFETY: as in `vector`.
        unsafe {
            if *self.in_use() >> 5 & 1 == 0 {
                return 0;
            }
            self.area
                .add(self.layout.mask + 8 * number)
                .cast::<u64>()
                .read_unaligned()
        }
    }

    /// XSTATE_BV, the first word of the XSAVE header: a bit for each component that is not in its
    /// initial state.
    fn in_use(&self) -> *mut u64 {
        self.area.wrapping_add(512).cast()
    }
}

/// Parts of a register: (state component, offset, first lane, lanes).
struct Vec4([(u32, usize, usize, usize); 3]);

/// Runs every form of the instructions that a compiler may choose.
///
/// # Safety
/// The CPU has AVX-512F and the handler is installed.
unsafe fn assert_emulation_works() {
    #[repr(align(64))]
    struct Operands([[u64; 8]; 4]);
    let mut operands = Operands([[0; 8]; 4]);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for lane in operands.0.as_flattened_mut() {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        *lane = state ^ state >> 29;
    }
    let [sum, a, b, _] = operands.0;
    let model = |high: bool, b: &dyn Fn(usize) -> u64, mask: u8, zero: bool| -> [u64; 8] {
        std::array::from_fn(|lane| {
            let digit = |value: u64| u128::from(value & ((1 << 52) - 1));
            let product = digit(a[lane]) * digit(b(lane));
            let half = (if high { product >> 52 } else { product }) & ((1 << 52) - 1);
            match mask >> lane & 1 {
                1 => sum[lane].wrapping_add(half as u64),
                _ if zero => 0,
                _ => sum[lane],
            }
        })
    };
    macro_rules! check {
        ($high:literal, $b:expr, $mask:literal, $zero:literal, $sum:literal, $a:literal, $b_register:literal, $instruction:literal) => {{
            let mut result = [0_u64; 8];
            // SAFETY: the CPU has AVX-512F; loads and stores stay within the arrays; the registers
            // that are written are declared.
            unsafe {
                asm!(
                    concat!("vmovdqu64 ", $sum, ", [{operands}]"),
                    concat!("vmovdqu64 ", $a, ", [{operands} + 64]"),
                    concat!("vmovdqu64 ", $b_register, ", [{operands} + 128]"),
                    "kmovw k3, {mask:e}",
                    "mov {index:e}, 16",
                    $instruction,
                    concat!("vmovdqu64 [{result}], ", $sum),
                    operands = in(reg) &operands,
                    result = in(reg) &mut result,
                    mask = in(reg) $mask as u32,
                    index = out(reg) _,
                    out("zmm1") _, out("zmm2") _, out("zmm12") _, out("zmm13") _, out("zmm3") _,
                    out("zmm17") _, out("zmm29") _, out("zmm30") _, out("k3") _,
                );
            }
            assert_eq!(result, model($high, &$b, $mask, $zero), "{}", $instruction);
        }};
    }
    let (second, first_of_second) = (|lane: usize| b[lane], |_: usize| b[0]);
    check!(
        false,
        second,
        0xff,
        false,
        "zmm1",
        "zmm2",
        "zmm3",
        "vpmadd52luq zmm1, zmm2, zmm3"
    );
    check!(
        true,
        second,
        0xff,
        false,
        "zmm1",
        "zmm2",
        "zmm3",
        "vpmadd52huq zmm1, zmm2, zmm3"
    );
    check!(
        true,
        second,
        0xff,
        false,
        "zmm13",
        "zmm12",
        "zmm30",
        "vpmadd52huq zmm13, zmm12, zmm30"
    );
    check!(
        false,
        second,
        0xff,
        false,
        "zmm29",
        "zmm17",
        "zmm12",
        "vpmadd52luq zmm29, zmm17, zmm12"
    );
    check!(
        false,
        second,
        0xff,
        false,
        "zmm17",
        "zmm3",
        "zmm2",
        "vpmadd52luq zmm17, zmm3, [{operands} + 128]"
    );
    check!(
        true,
        second,
        0xff,
        false,
        "zmm17",
        "zmm3",
        "zmm2",
        "vpmadd52huq zmm17, zmm3, [{operands} + {index} * 8]"
    );
    check!(
        true,
        second,
        0xff,
        false,
        "zmm2",
        "zmm30",
        "zmm1",
        "vpmadd52huq zmm2, zmm30, [{operands} + {index} * 4 + 64]"
    );
    check!(
        false,
        second,
        0xff,
        false,
        "zmm2",
        "zmm30",
        "zmm1",
        "vpmadd52luq zmm2, zmm30, [{operands} + {index} - 16 + 128]"
    );
    check!(
        false,
        first_of_second,
        0xff,
        false,
        "zmm1",
        "zmm2",
        "zmm3",
        "vpmadd52luq zmm1, zmm2, qword ptr [{operands} + 128]{{1to8}}"
    );
    check!(
        true,
        second,
        0b0110_1001,
        false,
        "zmm1",
        "zmm2",
        "zmm3",
        "vpmadd52huq zmm1 {{k3}}, zmm2, zmm3"
    );
    check!(
        true,
        second,
        0b0110_1001,
        true,
        "zmm1",
        "zmm2",
        "zmm3",
        "vpmadd52huq zmm1 {{k3}} {{z}}, zmm2, zmm3"
    );
    check!(
        false,
        |lane: usize| [7_u64, 0, 0, 0, 0, 0, 0, 0][lane],
        0xff,
        false,
        "zmm1",
        "zmm2",
        "zmm3",
        "jmp 3f\n.balign 64\n2: .quad 7, 0, 0, 0, 0, 0, 0, 0\n3: vpmadd52luq zmm1, zmm2, [rip + 2b]"
    );
}
