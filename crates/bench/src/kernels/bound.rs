//! The bound of the kernels: how many multiply instructions a batch takes, and how many a core
//! retires.

use slipstream_lanes::Backend;
use slipstream_lanes::rsa::Size;

/// The bits of a private exponent that are worked on at a time.
const WINDOW_BITS: usize = 4;
/// The squarings for 65537, the public exponent of practically every key.
const PUBLIC_SQUARINGS: u64 = 16;

/// The multiply instructions that a batch of eight takes, by the count of the algorithm: two
/// exponentiations with fixed windows and tables of 16 powers, the way into and out of Montgomery
/// form, the recombination, and the check with the public exponent
/// 65537. `None` for the portable backend.
pub fn multiplications_per_batch(backend: Backend, size: Size) -> Option<u64> {
    let half = size.bits() / 2;
    let (prime_digits, public_digits) = match backend {
        Backend::Ifma => (half.div_ceil(52), 2 * half.div_ceil(52)),
        Backend::Avx512 => (half.div_ceil(28), size.bits().div_ceil(28)),
        Backend::Portable => return None,
    };
    let prime = Multiplications::new(backend, prime_digits as u64);
    let public = Multiplications::new(backend, public_digits as u64);
    let windows = half.div_ceil(WINDOW_BITS) as u64;

    let exponentiation = (windows - 1) * (WINDOW_BITS as u64 * prime.squaring + prime.product)
        + 7 * prime.squaring
        + (8 + 2) * prime.product;
    let recombination = 3 * prime.product + public.product;
    let check = PUBLIC_SQUARINGS * public.squaring + 3 * public.product;
    Some(2 * exponentiation + recombination + check)
}

/// The multiply instructions of one Montgomery multiplication and one squaring of numbers of some
/// digits.
struct Multiplications {
    product: u64,
    squaring: u64,
}

impl Multiplications {
    fn new(backend: Backend, digits: u64) -> Multiplications {
        // The reduction takes as many digit products as a multiplication; a squaring computes those
        // off the diagonal once.
        let (product, squaring) = (
            2 * digits * digits,
            digits * (digits + 1) / 2 + digits * digits,
        );
        // IFMA takes an instruction for each half of a digit product.
        let halves = if backend == Backend::Ifma { 2 } else { 1 };
        Multiplications {
            product: halves * product,
            squaring: halves * squaring,
        }
    }
}

/// The multiply instructions per second of CPU time that the calling thread's core retires when it
/// does nothing else: vpmadd52 for [`Backend::Ifma`], vpmuludq with the vpaddq that adds its
/// product for [`Backend::Avx512`]. `None` for [`Backend::Portable`], and where the CPU lacks the
/// instructions.
pub fn multiply_rate(backend: Backend) -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if x86_64::is_present(backend) {
        return Some(x86_64::measure(backend));
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m512i, _mm512_add_epi64, _mm512_madd52hi_epu64, _mm512_madd52lo_epu64, _mm512_mul_epu32,
        _mm512_set1_epi64,
    };
    use std::hint::black_box;

    use slipstream_lanes::Backend;
    use slipstream_testbed::processor::thread_cpu_time;

    /// Independent chains: more than latency times throughput of any CPU (4 or 6 cycles, 2 a
    /// cycle), few enough for the registers.
    const CHAINS: usize = 16;
    const STEPS: usize = 20_000;
    /// The best of some runs counts: a bound must not be lowered by an interruption.
    const RUNS: usize = 20;

    /// Returns true if the CPU has the instructions. Not [`Backend::is_available`], which tests can
    /// override.
    pub(super) fn is_present(backend: Backend) -> bool {
        match backend {
            Backend::Ifma => is_x86_feature_detected!("avx512ifma"),
            Backend::Avx512 => is_x86_feature_detected!("avx512f"),
            Backend::Portable => false,
        }
    }

    pub(super) fn measure(backend: Backend) -> f64 {
        let fastest = (0..RUNS)
            .map(|_| {
                let started = thread_cpu_time();
                run(backend);
                thread_cpu_time() - started
            })
            .min()
            .expect("there are runs");
        (CHAINS * STEPS) as f64 / fastest.as_secs_f64()
    }

    fn run(backend: Backend) {
        match backend {
            // SAFETY: `is_present` has found IFMA, and with it AVX-512F, on this CPU.
            Backend::Ifma => unsafe { run_ifma() },
            // SAFETY: `is_present` has found AVX-512F on this CPU.
            _ => unsafe { run_avx512() },
        }
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    fn run_ifma() {
        let factor = black_box(_mm512_set1_epi64(0x000f_ffff_ffff_fffb));
        let mut chains = initial();
        for _ in 0..STEPS / 2 {
            for chain in &mut chains {
                *chain = _mm512_madd52lo_epu64(*chain, factor, factor);
            }
            for chain in &mut chains {
                *chain = _mm512_madd52hi_epu64(*chain, factor, factor);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx512f")]
    fn run_avx512() {
        let factor = black_box(_mm512_set1_epi64(0x0fff_fffb));
        let mut chains = initial();
        for _ in 0..STEPS {
            for chain in &mut chains {
                *chain = _mm512_add_epi64(*chain, _mm512_mul_epu32(*chain, factor));
            }
        }
        black_box(chains);
    }

    /// Values that the compiler cannot see to be equal, else it would compute one chain only.
    #[target_feature(enable = "avx512f")]
    fn initial() -> [__m512i; CHAINS] {
        std::array::from_fn(|index| black_box(_mm512_set1_epi64(index as i64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_for_rsa_2048_is_what_was_counted_by_hand() {
        // Two exponentiations of 255 windows: 2 * (255 * (4 * 1220 + 1600) + 7 * 1220 + 10 * 1600),
        // the recombination 3 * 1600 + 6400, the check 16 * 4840 + 3 * 6400.
        let exponentiations = 2 * (255 * 6480 + 8540 + 16_000);
        assert_eq!(
            multiplications_per_batch(Backend::Ifma, Size::Rsa2048),
            Some(exponentiations + 11_200 + 96_640)
        );
        assert_eq!(
            multiplications_per_batch(Backend::Portable, Size::Rsa2048),
            None
        );
    }

    #[test]
    fn there_is_a_bound_where_there_are_the_instructions() {
        for backend in Backend::ALL {
            let bounded = backend != Backend::Portable && backend.missing().next().is_none();
            assert_eq!(
                multiply_rate(backend).is_some(),
                bounded,
                "{}",
                backend.name()
            );
        }
    }

    #[test]
    fn the_bound_is_that_of_a_vector_unit() {
        // A compiler that dropped or merged the chains would seem to reach a multiple of what any
        // CPU does; one that kept them in memory, as a build without optimisation does, falls far
        // below.
        let slowest = if cfg!(debug_assertions) { 1e5 } else { 2e8 };
        if let Some(rate) = Backend::detect().and_then(multiply_rate) {
            assert!((slowest..2e10).contains(&rate), "{rate}");
        }
    }
}
