//! Eight private-key operations at once, from bytes to bytes.
//!
//! c^d mod n by the Chinese remainder theorem with Garner's recombination (RFC 8017, section
//! 5.1.2): m1 = c^dP mod p, m2 = c^dQ mod q, h = (m1 - m2) qInv mod p, m = m2 + q h; then m^e = c
//! mod n is checked. Exponentiation uses fixed windows of four bits and reads the whole table for
//! each window. If there are up to four operations, both exponentiations of each are computed at
//! once, in half the time.

use super::key::{Modular, PreparedKey, Prime};
use super::{PrivateOperation, Size, Workspace};
use crate::arithmetic::{Arithmetic, Modulus, PRODUCT_LENGTH, PortableArithmetic};
use crate::digits;
use crate::vector::Vector;
use crate::{Backend, LANES, OperationError};

/// The most operations whose two primes fit into the lanes side by side.
const HALF: usize = LANES / 2;

/// 64-bit words of the longest prime, and so of a CRT exponent.
const MAXIMUM_WORDS: usize = 2048 / 64;

/// The numbers that a batch computes with. Primes have N digits, public moduli P.
#[repr(C)]
pub(super) struct Memory<V, const N: usize, const P: usize> {
    table: [[V; N]; 16],
    /// Scratch of the multiplications.
    product: [V; PRODUCT_LENGTH],
    prime: Residue<V, N>,
    /// R^3 mod the prime.
    r_cubed: [V; N],
    exponent: [V; MAXIMUM_WORDS],
    power: [V; N],
    spare: [V; N],
    chosen: [V; N],
    /// m1 R mod p.
    remainder1: [V; N],
    /// m2 mod q.
    remainder2: [V; N],
    coefficient: [V; N],
    modulus: Residue<V, P>,
    /// q R mod n.
    prime2: [V; P],
    input: [V; P],
    result: [V; P],
    public_base: [V; P],
    public_power: [V; P],
    public_spare: [V; P],
}

/// Eight moduli, each with the factor that brings numbers into Montgomery form.
#[repr(C)]
struct Residue<V, const N: usize> {
    modulus: Modulus<V, N>,
    /// R^2 mod the modulus.
    r_squared: [V; N],
}

/// Runs the operations whose outcome is `Ok` so far. There is at least one, and all keys have this
/// size and backend.
pub(super) fn run(
    backend: Backend,
    workspace: &mut Workspace,
    size: Size,
    operations: &mut [PrivateOperation<'_>],
    outcomes: &mut [Result<(), OperationError>],
) {
    let first = operations
        .iter()
        .zip(outcomes.iter())
        .find_map(|(operation, outcome)| outcome.is_ok().then_some(operation.key))
        .expect("an operation to run");
    // Lanes without an operation compute on a copy of a live lane's key.
    let mut keys = [first; LANES];
    for (key, (operation, outcome)) in keys.iter_mut().zip(operations.iter().zip(outcomes.iter())) {
        if outcome.is_ok() {
            *key = operation.key;
        }
    }
    let batch = Batch {
        keys,
        operations,
        outcomes,
    };
    match backend {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the keys are for this backend, and a key for a backend exists only if the CPU has
        // the instructions.
        Backend::Ifma => unsafe { x86_64::run_ifma(workspace, batch, size) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Backend::Avx512 => unsafe { x86_64::run_avx512(workspace, batch, size) },
        #[cfg(not(target_arch = "x86_64"))]
        Backend::Ifma | Backend::Avx512 => unreachable!("no key for a backend not available"),
        Backend::Portable => run_portable(workspace, batch, size),
    }
}

fn run_portable(workspace: &mut Workspace, batch: Batch<'_, '_>, size: Size) {
    // SAFETY: the portable vector needs no particular CPU.
    unsafe {
        match size {
            Size::Rsa2048 => batch.run::<PortableArithmetic, 20, 40>(workspace),
            Size::Rsa3072 => batch.run::<PortableArithmetic, 30, 60>(workspace),
            Size::Rsa4096 => batch.run::<PortableArithmetic, 40, 80>(workspace),
        }
    }
}

/// The functions that turn the generic code into AVX-512 code. Everything is inlined into them,
/// except for the multiplications, which have target features of their own.
#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Batch, Size, Workspace};
    use crate::arithmetic::{Avx512Arithmetic, IfmaArithmetic};

    pub(super) unsafe fn run_ifma(workspace: &mut Workspace, batch: Batch<'_, '_>, size: Size) {
        // SAFETY: the CPU has AVX-512 IFMA, by the contract of this function.
        unsafe {
            match size {
                Size::Rsa2048 => ifma::<20, 40>(workspace, batch),
                Size::Rsa3072 => ifma::<30, 60>(workspace, batch),
                Size::Rsa4096 => ifma::<40, 80>(workspace, batch),
            }
        }
    }

    pub(super) unsafe fn run_avx512(workspace: &mut Workspace, batch: Batch<'_, '_>, size: Size) {
        // SAFETY: the CPU has AVX-512F, by the contract of this function.
        unsafe {
            match size {
                Size::Rsa2048 => avx512::<37, 74>(workspace, batch),
                Size::Rsa3072 => avx512::<55, 110>(workspace, batch),
                Size::Rsa4096 => avx512::<74, 147>(workspace, batch),
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline(never)]
    fn ifma<const N: usize, const P: usize>(workspace: &mut Workspace, batch: Batch<'_, '_>) {
        // SAFETY: the CPU has AVX-512 IFMA, else this function must not be called.
        unsafe { batch.run::<IfmaArithmetic, N, P>(workspace) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline(never)]
    fn avx512<const N: usize, const P: usize>(workspace: &mut Workspace, batch: Batch<'_, '_>) {
        // SAFETY: the CPU has AVX-512F, else this function must not be called.
        unsafe { batch.run::<Avx512Arithmetic, N, P>(workspace) }
    }
}

/// The operations of a call, and a key for every lane.
struct Batch<'a, 'b> {
    keys: [&'a PreparedKey; LANES],
    operations: &'a mut [PrivateOperation<'b>],
    outcomes: &'a mut [Result<(), OperationError>],
}

impl Batch<'_, '_> {
    /// # Safety
    /// The CPU has the instructions of `A`.
    #[inline(always)]
    unsafe fn run<A: Arithmetic, const N: usize, const P: usize>(self, workspace: &mut Workspace) {
        // SAFETY: the CPU has the instructions, by the contract of this function.
        let mut memory = unsafe { workspace.memory::<A::Vector, N, P>() };
        let memory = &mut *memory;
        for (lane, operation) in self.live() {
            digits::load_bytes(&mut memory.input, lane, operation.input, A::DIGIT_BITS);
        }
        if self.operations.len() <= HALF {
            memory.raise_side_by_side::<A>(&self.keys);
        } else {
            memory.raise::<A>(&self.keys);
        }
        memory.load_modulus(&self.keys);
        memory.recombine::<A>();
        let faults = memory.check::<A>(self.keys.map(|key| key.public_exponent));
        self.release::<A, N, P>(memory, faults);
    }

    /// The operations to run, and their lanes.
    fn live(&self) -> impl Iterator<Item = (usize, &PrivateOperation<'_>)> {
        self.operations
            .iter()
            .enumerate()
            .filter(|(lane, _)| self.outcomes[*lane].is_ok())
    }

    /// Stores the results that passed the check with the public exponent.
    #[inline(always)]
    fn release<A: Arithmetic, const N: usize, const P: usize>(
        self,
        memory: &mut Memory<A::Vector, N, P>,
        faults: [u64; LANES],
    ) {
        let operations = self.operations.iter_mut().zip(self.outcomes);
        for (lane, (operation, outcome)) in operations.enumerate() {
            if outcome.is_err() {
                continue;
            }
            if faults[lane] != 0 {
                *outcome = Err(OperationError::Fault);
                continue;
            }
            digits::store_bytes(&mut memory.result, lane, operation.output, A::DIGIT_BITS);
        }
    }
}

impl<V: Vector, const N: usize, const P: usize> Memory<V, N, P> {
    /// The two exponentiations: m1 R mod p and m2 mod q. Leaves the first prime loaded.
    #[inline(always)]
    fn raise<A: Arithmetic<Vector = V>>(&mut self, keys: &[&PreparedKey; LANES]) {
        let words = keys[0].prime1.exponent.len();
        self.load_prime(keys.map(|key| &key.prime2));
        self.reduce_input::<A>();
        self.exponentiate::<A>(words);
        self.leave_montgomery_form::<A>();
        self.remainder2 = self.spare;

        self.load_prime(keys.map(|key| &key.prime1));
        self.reduce_input::<A>();
        self.exponentiate::<A>(words);
        self.remainder1 = self.power;
    }

    /// Does what [`raise`](Self::raise) does for operations in the first four lanes, in the time of
    /// one exponentiation: the second primes are in those lanes, the first primes in the other
    /// four.
    #[inline(always)]
    fn raise_side_by_side<A: Arithmetic<Vector = V>>(&mut self, keys: &[&PreparedKey; LANES]) {
        let words = keys[0].prime1.exponent.len();
        let primes: [&Prime; LANES] = core::array::from_fn(|lane| match lane.checked_sub(HALF) {
            None => &keys[lane].prime2,
            Some(lane) => &keys[lane].prime1,
        });
        self.load_prime(primes);
        take_half(&mut self.input, 0);
        self.reduce_input::<A>();
        self.exponentiate::<A>(words);
        self.remainder1 = self.power;
        take_half(&mut self.remainder1, HALF);
        self.leave_montgomery_form::<A>();
        self.remainder2 = self.spare;
        self.load_prime(keys.map(|key| &key.prime1));
    }

    #[inline(always)]
    fn load_prime(&mut self, lanes: [&Prime; LANES]) {
        self.prime.load(lanes.map(|prime| &prime.residue));
        for (lane, prime) in lanes.into_iter().enumerate() {
            digits::load_lane(&mut self.r_cubed, lane, &prime.r_cubed);
            digits::load_lane(&mut self.exponent, lane, &prime.exponent);
        }
    }

    /// `chosen` = input R modulo the prime. With input = c0 + c1 R this is c0 R^2 / R + c1 R^3 / R.
    /// The result is less than four times the prime.
    #[inline(always)]
    fn reduce_input<A: Arithmetic<Vector = V>>(&mut self) {
        let (low, high) = self.input.split_at(N);
        let modulus = &self.prime.modulus;
        self.spare.copy_from_slice(low);
        A::multiply(
            &mut self.chosen,
            &self.spare,
            &self.prime.r_squared,
            modulus,
            &mut self.product,
        );
        self.spare.fill(digits::splat(low[0], 0));
        self.spare[..P - N].copy_from_slice(high);
        A::multiply(
            &mut self.power,
            &self.spare,
            &self.r_cubed,
            modulus,
            &mut self.product,
        );
        digits::normalise(&mut self.chosen, A::DIGIT_BITS);
        digits::normalise(&mut self.power, A::DIGIT_BITS);
        digits::add(&mut self.chosen, &self.power, A::DIGIT_BITS);
    }

    /// `power` = `chosen` ^ `exponent`, both in Montgomery form; the exponent has `words` 64-bit
    /// words.
    #[inline(always)]
    fn exponentiate<A: Arithmetic<Vector = V>>(&mut self, words: usize) {
        let Memory {
            table,
            product,
            chosen,
            ..
        } = self;
        let modulus = &self.prime.modulus;
        set_to_one(&mut self.spare);
        A::multiply(
            &mut table[0],
            &self.spare,
            &self.prime.r_squared,
            modulus,
            product,
        );
        table[1] = *chosen;
        for index in 2..16 {
            let (known, unknown) = table.split_at_mut(index);
            if index.is_multiple_of(2) {
                A::square(&mut unknown[0], &known[index / 2], modulus, product);
            } else {
                A::multiply(
                    &mut unknown[0],
                    &known[index - 1],
                    &known[1],
                    modulus,
                    product,
                );
            }
        }

        let last = words * WINDOWS_PER_WORD - 1;
        digits::look_up(&mut self.power, table, window(&self.exponent, last));
        let (mut power, mut spare) = (&mut self.power, &mut self.spare);
        for index in (0..last).rev() {
            A::square(spare, power, modulus, product);
            A::square(power, spare, modulus, product);
            A::square(spare, power, modulus, product);
            A::square(power, spare, modulus, product);
            digits::look_up(chosen, table, window(&self.exponent, index));
            A::multiply(spare, power, chosen, modulus, product);
            core::mem::swap(&mut power, &mut spare);
        }
        // They were swapped an odd number of times.
        *spare = *power;
    }

    /// `spare` = `power` out of Montgomery form, canonical.
    #[inline(always)]
    fn leave_montgomery_form<A: Arithmetic<Vector = V>>(&mut self) {
        set_to_one(&mut self.chosen);
        let modulus = &self.prime.modulus;
        A::multiply(
            &mut self.spare,
            &self.power,
            &self.chosen,
            modulus,
            &mut self.product,
        );
        digits::normalise(&mut self.spare, A::DIGIT_BITS);
        digits::reduce_once(
            &mut self.spare,
            &modulus.digits,
            &mut self.power,
            A::DIGIT_BITS,
        );
    }

    #[inline(always)]
    fn load_modulus(&mut self, keys: &[&PreparedKey; LANES]) {
        self.modulus.load(keys.map(|key| &key.residue));
        for (lane, key) in keys.iter().enumerate() {
            digits::load_lane(&mut self.coefficient, lane, &key.coefficient);
            digits::load_lane(&mut self.prime2, lane, &key.prime2_montgomery);
        }
    }

    /// `result` = m2 + q ((m1 - m2) qInv mod p), canonical.
    #[inline(always)]
    fn recombine<A: Arithmetic<Vector = V>>(&mut self) {
        // m1 R + 2 p - m2 R: m2 R is below 2 p.
        let modulus = &self.prime.modulus;
        let difference = &mut self.power;
        A::multiply(
            &mut self.spare,
            &self.remainder2,
            &self.prime.r_squared,
            modulus,
            &mut self.product,
        );
        digits::normalise(&mut self.spare, A::DIGIT_BITS);
        digits::normalise(&mut self.remainder1, A::DIGIT_BITS);
        digits::add(&mut self.remainder1, &modulus.digits, A::DIGIT_BITS);
        digits::add(&mut self.remainder1, &modulus.digits, A::DIGIT_BITS);
        let borrow = digits::subtract(difference, &self.remainder1, &self.spare, A::DIGIT_BITS);
        borrow.state_below(1);
        // qInv is not in Montgomery form, so h is not either.
        let h = &mut self.spare;
        A::multiply(h, difference, &self.coefficient, modulus, &mut self.product);
        digits::normalise(h, A::DIGIT_BITS);
        digits::reduce_once(h, &modulus.digits, difference, A::DIGIT_BITS);

        // h q modulo n, possibly n too high; h q + m2 is less than n.
        let modulus = &self.modulus.modulus;
        self.public_base.fill(digits::splat(h[0], 0));
        self.public_base[..N].copy_from_slice(h);
        A::multiply(
            &mut self.result,
            &self.public_base,
            &self.prime2,
            modulus,
            &mut self.product,
        );
        digits::normalise(&mut self.result, A::DIGIT_BITS);
        self.public_base[..N].copy_from_slice(&self.remainder2);
        digits::add(&mut self.result, &self.public_base, A::DIGIT_BITS);
        digits::reduce_once(
            &mut self.result,
            &modulus.digits,
            &mut self.public_base,
            A::DIGIT_BITS,
        );
    }

    /// Zero in the lanes where `result` is less than the modulus and its public power is the input.
    /// `exponents` are the public exponents.
    #[inline(always)]
    fn check<A: Arithmetic<Vector = V>>(&mut self, exponents: [u64; LANES]) -> [u64; LANES] {
        let Memory {
            product,
            input,
            result,
            ..
        } = self;
        let modulus = &self.modulus.modulus;
        let base = &mut self.public_base;
        let (mut power, mut spare) = (&mut self.public_power, &mut self.public_spare);
        let top = exponents.iter().fold(0, |all, e| all | e).ilog2();

        // From the highest bit of the longest exponent down; a bit counts in its own lane only.
        A::multiply(base, result, &self.modulus.r_squared, modulus, product);
        set_to_one(spare);
        A::multiply(power, spare, &self.modulus.r_squared, modulus, product);
        replace_where_bit_is_set(power, base, exponents, top);
        for bit in (1..top).rev() {
            A::square(spare, power, modulus, product);
            core::mem::swap(&mut power, &mut spare);
            if exponents.iter().any(|exponent| exponent >> bit & 1 == 1) {
                A::multiply(spare, power, base, modulus, product);
                replace_where_bit_is_set(power, spare, exponents, bit);
            }
        }
        // The last bit is set, since exponents are odd. The result is not in Montgomery form, so
        // the product with it is not either.
        A::square(spare, power, modulus, product);
        A::multiply(power, spare, result, modulus, product);
        digits::normalise(power, A::DIGIT_BITS);
        digits::reduce_once(power, &modulus.digits, spare, A::DIGIT_BITS);

        let differences = digits::differ(power, input);
        let is_below = digits::subtract(spare, result, &modulus.digits, A::DIGIT_BITS);
        let is_not_below = is_below.xor(digits::splat(is_below, u64::MAX));
        digits::lanes_of(differences.or(is_not_below))
    }
}

impl<V: Vector, const N: usize> Residue<V, N> {
    #[inline(always)]
    fn load(&mut self, lanes: [&Modular; LANES]) {
        for (lane, modular) in lanes.into_iter().enumerate() {
            digits::load_lane(&mut self.modulus.digits, lane, &modular.modulus);
            digits::load_lane(&mut self.r_squared, lane, &modular.r_squared);
        }
        self.modulus.negated_inverse = digits::from_lanes(
            self.modulus.negated_inverse,
            lanes.map(|modular| modular.negated_inverse),
        );
    }
}

const WINDOW_BITS: u32 = 4;
const WINDOWS_PER_WORD: usize = (u64::BITS / WINDOW_BITS) as usize;

/// The four bits of `exponent` from bit 4 `index` on.
#[inline(always)]
fn window<V: Vector>(exponent: &[V; MAXIMUM_WORDS], index: usize) -> V {
    let word = exponent[index / WINDOWS_PER_WORD];
    let shift = WINDOW_BITS * (index % WINDOWS_PER_WORD) as u32;
    word.shift_right(shift)
        .and(digits::splat(word, (1 << WINDOW_BITS) - 1))
}

/// Copies `other` to `number` in the lanes where the public exponent has this bit.
#[inline(always)]
fn replace_where_bit_is_set<V: Vector>(
    number: &mut [V],
    other: &[V],
    exponents: [u64; LANES],
    bit: u32,
) {
    let bits = digits::from_lanes(number[0], exponents.map(|exponent| exponent >> bit & 1));
    let is_set = bits.equal(digits::splat(bits, 1));
    for (digit, other) in number.iter_mut().zip(other) {
        *digit = other.select(*digit, is_set);
    }
}

/// Copies the four lanes from `first` on to both halves.
#[inline(always)]
fn take_half<V: Vector>(number: &mut [V], first: usize) {
    for digit in number {
        let lanes = digits::lanes_of(*digit);
        let taken = core::array::from_fn(|lane| lanes[first + lane % HALF]);
        *digit = digits::from_lanes(*digit, taken);
    }
}

#[inline(always)]
fn set_to_one<V: Vector>(number: &mut [V]) {
    let one = digits::splat(number[0], 1);
    number.fill(digits::splat(one, 0));
    number[0] = one;
}

#[cfg(all(test, feature = "system-openssl"))]
impl<V: Vector, const N: usize, const P: usize> Memory<V, N, P> {
    /// Writes something near either end.
    pub(super) fn dirty(&mut self) {
        digits::load_lane(&mut self.table[0], 3, &[1, 2, 3]);
        digits::load_lane(&mut self.public_spare, 7, &[4; P]);
    }
}

#[cfg(test)]
mod bounds;
