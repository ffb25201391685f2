//! Support for tests of faults: damaged tables of multiples of base points, as memory with a defect
//! would hold them.

use core::cell::Cell;

use slipstream_keys::ec::Curve;

/// The damage to a table.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
    /// A bit is flipped in one multiple of the first window, which has at least 32 of them.
    Bit {
        /// The number of the multiple.
        multiple: usize,
    },
    /// A bit is flipped in every multiple of the first window, so that every product is wrong.
    Bits,
    /// The multiples of the first window have changed places, so that every product is wrong. It is
    /// a point of the curve all the same.
    Places,
}

/// Calls `f`. Meanwhile, kernels that this thread calls find a damaged table for `curve`.
pub fn with_damaged_table<R>(curve: Curve, damage: Damage, f: impl FnOnce() -> R) -> R {
    let before = DAMAGE.replace(Some((curve, damage)));
    let result = f();
    DAMAGE.set(before);
    result
}

/// The damage to the table of the curve whose integers have this number of bytes.
pub(crate) fn damage(bytes: usize) -> Option<Damage> {
    let (curve, damage) = DAMAGE.get()?;
    (curve.bytes() == bytes).then_some(damage)
}

thread_local! {
    static DAMAGE: Cell<Option<(Curve, Damage)>> = const { Cell::new(None) };
}
