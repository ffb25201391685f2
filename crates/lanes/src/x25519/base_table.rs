//! Odd multiples of the base point of edwards25519, computed at compile time.

use super::element::Element;
use crate::vector::Lanes;

/// Bits of a window of a scalar.
pub(super) const WINDOW_BITS: usize = 5;

/// Windows from one row of the table to the next.
pub(super) const WINDOWS_PER_ROW: usize = 5;

/// Rows of the table.
pub(super) const ROWS: usize = 10;

/// Multiples in a row.
const MULTIPLES: usize = 1 << (WINDOW_BITS - 1);

/// Sixteen points, given by (y - x) / 2, (y + x) / 2 and d x y, one after the other. Each begins
/// with the least significant digit of radix 2^52 of all points, which is two vectors, followed by
/// the next digit, and so on.
pub(super) type Row = Lanes<30>;

/// In row j, the multiples 1, 3, ..., 31 of 2^(25 j) P, where P = 4 B.
pub(super) static TABLE: [Row; ROWS] = PRECOMPUTED.table;

/// A row with two points, (2^252 + 2^250 - 1) P and (2^252 + 2^251 + 2^250 - 1) P. The rest is
/// zero.
pub(super) static OFFSETS: Row = PRECOMPUTED.offsets;

struct Precomputed {
    table: [Row; ROWS],
    offsets: Row,
}

const PRECOMPUTED: Precomputed = precompute();

const D: Element = Element::from_words([
    0x75eb_4dca_1359_78a3,
    0x0070_0a4d_4141_d8ab,
    0x8cc7_4079_7779_e898,
    0x5203_6cee_2b6f_fe73,
]);

const HALF: Element = Element::ONE.add(Element::ONE).invert();

/// A point (x / z, y / z), with t = x y / z.
#[derive(Clone, Copy)]
struct Point {
    x: Element,
    y: Element,
    z: Element,
    t: Element,
}

/// B (RFC 7748, section 4.1).
const BASE: Point = {
    let x = Element::from_words([
        0xc956_2d60_8f25_d51a,
        0x692c_c760_9525_a7b2,
        0xc0a4_e231_fdd6_dc5c,
        0x2169_36d3_cd6e_53fe,
    ]);
    let y = Element::from_words([
        0x6666_6666_6666_6658,
        0x6666_6666_6666_6666,
        0x6666_6666_6666_6666,
        0x6666_6666_6666_6666,
    ]);
    Point {
        x,
        y,
        z: Element::ONE,
        t: x.multiply(y),
    }
};

impl Point {
    /// Hisil, Wong, Carter and Dawson, "Twisted Edwards Curves Revisited" (2008), section 3.1:
    /// complete.
    const fn add(self, other: Point) -> Point {
        let a = self.y.subtract(self.x).multiply(other.y.subtract(other.x));
        let b = self.y.add(self.x).multiply(other.y.add(other.x));
        let c = self.t.multiply(other.t).multiply(D.add(D));
        let d = self.z.multiply(other.z);
        let d = d.add(d);
        let (e, f, g, h) = (b.subtract(a), d.subtract(c), d.add(c), b.add(a));
        Point {
            x: e.multiply(f),
            y: g.multiply(h),
            z: f.multiply(g),
            t: e.multiply(h),
        }
    }

    const fn double(self) -> Point {
        self.add(self)
    }

    /// 2^count times the point.
    const fn double_times(self, count: usize) -> Point {
        let mut multiple = self;
        let mut done = 0;
        while done < count {
            multiple = multiple.double();
            done += 1;
        }
        multiple
    }

    /// (y - x) / 2, (y + x) / 2 and d x y of the point (x, y), in digits of radix 2^52.
    const fn coordinates(self, z_inverse: Element) -> [[u64; 5]; 3] {
        let (x, y) = (self.x.multiply(z_inverse), self.y.multiply(z_inverse));
        [
            y.subtract(x).multiply(HALF).to_digits52(),
            y.add(x).multiply(HALF).to_digits52(),
            x.multiply(y).multiply(D).to_digits52(),
        ]
    }

    const fn negate(self) -> Point {
        Point {
            x: Element::ZERO.subtract(self.x),
            t: Element::ZERO.subtract(self.t),
            ..self
        }
    }
}

#[allow(long_running_const_eval, reason = "about a second")]
const fn precompute() -> Precomputed {
    const POINTS: usize = ROWS * MULTIPLES;
    let mut points = [BASE; POINTS + 2];
    let unit = BASE.double_times(2);
    let mut first = unit;
    let mut row = 0;
    while row < ROWS {
        let twice = first.double();
        let mut multiple = first;
        let mut index = 0;
        while index < MULTIPLES {
            points[row * MULTIPLES + index] = multiple;
            multiple = multiple.add(twice);
            index += 1;
        }
        first = first.double_times(WINDOW_BITS * WINDOWS_PER_ROW);
        row += 1;
    }
    // `first` is 2^250 P.
    let offset = first.double_times(2).add(first).add(unit.negate());
    points[POINTS] = offset;
    points[POINTS + 1] = offset.add(first.double());

    // Montgomery's trick: one inversion for all points.
    let mut products = [Element::ONE; POINTS + 3];
    let mut index = 0;
    while index < POINTS + 2 {
        products[index + 1] = products[index].multiply(points[index].z);
        index += 1;
    }
    let mut inverse = products[POINTS + 2].invert();
    let mut precomputed = Precomputed {
        table: [Lanes::splat(0); ROWS],
        offsets: Lanes::splat(0),
    };
    while index > 0 {
        index -= 1;
        let point = points[index];
        let coordinates = point.coordinates(inverse.multiply(products[index]));
        inverse = inverse.multiply(point.z);
        let row = if index < POINTS {
            &mut precomputed.table[index / MULTIPLES]
        } else {
            &mut precomputed.offsets
        };
        let multiple = index % MULTIPLES;
        let mut digit = 0;
        while digit < 15 {
            row.0[2 * digit + multiple / 8][multiple % 8] = coordinates[digit / 5][digit % 5];
            digit += 1;
        }
    }
    precomputed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_point_is_on_the_curve_and_has_u_coordinate_9() {
        let Point { x, y, .. } = BASE;
        let (x_squared, y_squared) = (x.multiply(x), y.multiply(y));
        let product = D.multiply(x_squared).multiply(y_squared);
        assert_eq!(
            y_squared.subtract(x_squared).to_words(),
            Element::ONE.add(product).to_words()
        );
        let u = Element::ONE
            .add(y)
            .multiply(Element::ONE.subtract(y).invert());
        assert_eq!(u.to_words(), [9, 0, 0, 0]);
    }

    #[test]
    fn every_point_of_the_table_is_on_the_curve() {
        let rows = TABLE.iter().chain([&OFFSETS]);
        let points = rows.flat_map(|row| (0..MULTIPLES).map(move |multiple| (row, multiple)));
        for (row, multiple) in points.take(ROWS * MULTIPLES + 2) {
            let coordinate = |index: usize| {
                Element::from_digits52(core::array::from_fn(|digit| {
                    row.0[2 * (5 * index + digit) + multiple / 8][multiple % 8]
                }))
            };
            let (minus, plus, product) = (coordinate(0), coordinate(1), coordinate(2));
            let (x, y) = (plus.subtract(minus), plus.add(minus));
            let xy = x.multiply(y);
            assert_eq!(product.to_words(), D.multiply(xy).to_words());
            let difference = y.multiply(y).subtract(x.multiply(x));
            let expected = Element::ONE.add(product.multiply(xy));
            assert_eq!(difference.to_words(), expected.to_words());
        }
    }
}
