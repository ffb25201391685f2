//! Finding and wiping copies of secrets in the memory of this process.
//!
//! A worker whose private keys are held by an accelerator has been forked from a master that has
//! read them: copies lie in freed buffers, as numbers, as DER and as PEM. A [`Scrubber`] finds and
//! wipes them, independent of the code that allocated the memory.

use std::io;
use std::ops::Range;

/// Finds copies of secrets by every eight bytes of them: as they are, in reverse (the numbers of a
/// little-endian machine), and in base64.
pub struct Scrubber {
    windows: Mapped,
}

/// The bytes of a word. Copies of a secret are found by the aligned words in them.
const WORD: usize = size_of::<u64>();

/// The length of memory that is searched with one system call.
const CHUNK: usize = 64 * PAGE;

const PAGE: usize = 4096;

/// The most words of text between two found words that are wiped with them. In PEM, the header of
/// the next number (four bytes in DER) and the end of a line may spoil as many.
const GAP: usize = 3;

impl Scrubber {
    /// A scrubber for `secrets`. Secrets that are shorter than a word, or zero, are not found: they
    /// cannot be told from other data.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn new<'a>(secrets: impl Iterator<Item = &'a [u8]> + Clone) -> io::Result<Self> {
        let mut count = 0;
        secrets
            .clone()
            .for_each(|secret| each_window(secret, |_| count += 1));
        let mut windows = Mapped::new(count)?;
        let mut places = windows.words_mut().iter_mut();
        secrets.for_each(|secret| {
            each_window(secret, |window| {
                *places.next().expect("as many as were counted") = window;
            });
        });
        windows.words_mut().sort_unstable();
        Ok(Self { windows })
    }

    /// Wipes the copies in the private, writable memory of this process. Returns the number of
    /// words that were wiped.
    ///
    /// # Errors
    /// If the system does not tell the places of that memory, or has no memory to spare.
    ///
    /// # Safety
    /// The process needs none of the secrets any more: they are wiped wherever they are, also where
    /// they are in use. No other thread unmaps memory meanwhile.
    pub unsafe fn wipe(self) -> io::Result<usize> {
        // Kept until the end: it may have a mapping of its own, which is one of those that are
        // searched.
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        let mut copy = Mapped::new(CHUNK / WORD)?;
        let own = [self.windows.range(), copy.range()];
        let mut wiped = 0;
        for range in maps.lines().filter_map(writable) {
            let parts = without(range, &own[0])
                .into_iter()
                .flat_map(|part| without(part, &own[1]));
            for part in parts {
                // SAFETY: by the caller's promise, and mappings can be written.
                wiped += unsafe { self.wipe_range(part, copy.words_mut()) };
            }
        }
        Ok(wiped)
    }

    /// # Safety
    /// The readable part of `range` can be written, and no code of the process needs a secret in
    /// it.
    unsafe fn wipe_range(&self, range: Range<usize>, copy: &mut [u64]) -> usize {
        let mut wiped = 0;
        let mut text = NO_TEXT;
        let mut address = range.start.next_multiple_of(WORD);
        while address + WORD <= range.end {
            let length = (range.end - address).min(CHUNK) / WORD * WORD;
            let read = read_memory(address, &mut copy[..length / WORD]);
            if read == 0 {
                // An unreadable page, such as the guard of a stack.
                address = (address / PAGE + 1) * PAGE;
                text = NO_TEXT;
                continue;
            }
            for (place, value) in copy[..read / WORD].iter().enumerate() {
                let found = address + place * WORD;
                if !self.has(*value) {
                    // What is not text may be in use, such as the allocator's size of a block.
                    text = match is_text(*value) && text < GAP {
                        true => text + 1,
                        false => NO_TEXT,
                    };
                    continue;
                }
                let start = match text {
                    NO_TEXT => found,
                    words => found - words * WORD,
                };
                text = 0;
                for address in (start..=found).step_by(WORD) {
                    let word: *mut u64 = std::ptr::with_exposed_provenance_mut(address);
                    // SAFETY: an aligned word that has just been read; the caller's promise. It may
                    // belong to any object of the process, so the access is volatile.
                    unsafe { word.write_volatile(0) };
                }
                wiped += 1;
            }
            address += read;
        }
        copy.fill(0);
        wiped
    }

    fn has(&self, word: u64) -> bool {
        self.windows.words().binary_search(&word).is_ok()
    }
}

/// Calls `f` with every window of every form of `secret`.
fn each_window(secret: &[u8], mut f: impl FnMut(u64)) {
    let mut each = |bytes: &mut dyn Iterator<Item = u8>| {
        let (mut window, mut length) = (0u64, 0);
        for byte in bytes {
            // As a little-endian machine reads it.
            window = window >> 8 | u64::from(byte) << 56;
            length += 1;
            if length >= WORD && !is_common(window) {
                f(window);
            }
        }
    };
    each(&mut secret.iter().copied());
    each(&mut secret.iter().rev().copied());
    for skipped in 0..3 {
        each(&mut base64(secret.get(skipped..).unwrap_or(&[])));
    }
}

/// The number of words of text since the last found word if something else has come between.
const NO_TEXT: usize = usize::MAX;

/// Returns true if all bytes of `word` can stand in a PEM.
fn is_text(word: u64) -> bool {
    let mut bytes = word.to_le_bytes().into_iter();
    bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte))
}

/// Returns true if many words of a process may have this value by chance.
fn is_common(window: u64) -> bool {
    let bytes = window.to_le_bytes();
    let distinct = (0..WORD).filter(|&place| !bytes[..place].contains(&bytes[place]));
    distinct.count() < 4
}

/// The whole groups of `bytes` in base64 (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> impl Iterator<Item = u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes.chunks_exact(3).flat_map(|group| {
        let bits = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        [18, 12, 6, 0].map(|shift| ALPHABET[(bits >> shift) as usize & 63])
    })
}

/// Copies memory of this process from `address` on, as far as it can be read. Returns the number of
/// bytes.
fn read_memory(address: usize, copy: &mut [u64]) -> usize {
    let length = size_of_val(copy);
    let local = libc::iovec {
        iov_base: copy.as_mut_ptr().cast(),
        iov_len: length,
    };
    let remote = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(address),
        iov_len: length,
    };
    // SAFETY: the kernel writes no more than `length` bytes to `copy`; it checks the other address
    // itself.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    usize::try_from(read).unwrap_or(0) / WORD * WORD
}

/// Returns the memory of a private mapping that can be written.
fn writable(line: &str) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    (permissions.starts_with("rw") && permissions.ends_with('p'))
        .then_some(address(start)?..address(end)?)
}

/// Returns the parts of `range` outside of `hole`.
fn without(range: Range<usize>, hole: &Range<usize>) -> [Range<usize>; 2] {
    [
        range.start..range.end.min(hole.start).max(range.start),
        range.start.max(hole.end).min(range.end)..range.end,
    ]
}

/// Words in a mapping of their own: the search leaves it out, and the kernel clears it when it is
/// dropped.
struct Mapped {
    address: std::ptr::NonNull<u64>,
    count: usize,
}

impl Mapped {
    fn new(count: usize) -> io::Result<Self> {
        let bytes = (count * WORD).max(1);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = std::ptr::NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("a mapping at address zero"))?;
        Ok(Self { address, count })
    }

    fn words(&self) -> &[u64] {
        // SAFETY: mapped in `new`, as long as that, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.address.as_ptr(), self.count) }
    }

    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.address.as_ptr(), self.count) }
    }

    fn range(&self) -> Range<usize> {
        let start = self.address.as_ptr().addr();
        start..start + self.count * WORD
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, whole.
        unsafe { libc::munmap(self.address.as_ptr().cast(), (self.count * WORD).max(1)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Vec<u8> {
        (0..64u8).map(|n| n.wrapping_mul(167) ^ 0x5a).collect()
    }

    /// Wipes the scrubber of the secret in `buffer`, which starts at an aligned address.
    fn wipe(buffer: &mut [u8]) -> usize {
        let secret = secret();
        let scrubber = Scrubber::new(std::iter::once(&secret[..])).expect("memory");
        let start = buffer.as_mut_ptr().expose_provenance();
        assert_eq!(start % WORD, 0);
        // SAFETY: the buffer, which no other code uses.
        unsafe { scrubber.wipe_range(start..start + buffer.len(), &mut [0; CHUNK / WORD]) }
    }

    fn aligned(offset: usize, content: &[u8]) -> Vec<u8> {
        let mut buffer = vec![0xee; 256];
        assert_eq!(buffer.as_ptr().addr() % WORD, 0, "as allocators align");
        buffer[offset..offset + content.len()].copy_from_slice(content);
        buffer
    }

    fn contains(buffer: &[u8], content: &[u8]) -> bool {
        let sixteen = |place: usize| content[place..place + 16].to_vec();
        (0..content.len() - 16)
            .any(|place| buffer.windows(16).any(|window| window == sixteen(place)))
    }

    #[test]
    fn copies_are_wiped_wherever_they_lie() {
        let secret = secret();
        let reversed: Vec<u8> = secret.iter().rev().copied().collect();
        for offset in 8..16 {
            for content in [&secret, &reversed] {
                for part in [&content[..], &content[5..40]] {
                    let mut buffer = aligned(offset, part);
                    assert!(wipe(&mut buffer) >= 3);
                    assert!(!contains(&buffer, part), "at {offset}");
                    assert_eq!(buffer[..8], [0xee; 8], "what is not the secret's");
                    assert_eq!(buffer[128..], [0xee; 128]);
                }
            }
        }
    }

    #[test]
    fn pem_is_wiped_whatever_comes_before_the_secret() {
        let secret = secret();
        for before in 0..3 {
            let mut der = vec![0x30; before];
            der.extend(&secret);
            der.extend([7, 7]);
            let mut text: Vec<u8> = base64(&der).collect();
            text.insert(37, b'\n');
            for offset in 8..16 {
                let mut buffer = aligned(offset, &text);
                assert!(wipe(&mut buffer) >= 5);
                assert!(!contains(&buffer, &text[before * 4 / 3 + 1..][..80]));
            }
        }
    }

    /// The header of the second number and the end of a line lie between both.
    #[test]
    fn pem_is_wiped_between_two_numbers() {
        let secret = secret();
        for before in 0..3 {
            let mut der = vec![0x30; before];
            der.extend(&secret[..32]);
            der.extend([0x02, 0x81, 0x81, 0x00]);
            der.extend(&secret[32..]);
            let text: Vec<u8> = base64(&der).collect();
            for end_of_line in 30..60 {
                let mut text = text.clone();
                text.insert(end_of_line, b'\n');
                for offset in 8..16 {
                    let mut buffer = aligned(offset, &text);
                    wipe(&mut buffer);
                    let inner = &text[before * 4 / 3 + 1..][..80];
                    assert!(
                        !contains(&buffer, inner),
                        "line of {end_of_line}, at {offset}"
                    );
                }
            }
        }
    }

    /// Between two blocks of an allocator lies the size of the second one.
    #[test]
    fn what_lies_between_two_copies_is_left_alone() {
        let secret = secret();
        for words in 1..=GAP {
            let mut content = secret.clone();
            content.extend(std::iter::repeat_n(0x91, words * WORD));
            content.extend(&secret);
            let mut buffer = aligned(8, &content);
            wipe(&mut buffer);
            let between = &buffer[8 + secret.len()..][..words * WORD];
            assert!(between.iter().all(|&byte| byte == 0x91), "{words}");
        }
    }

    #[test]
    fn other_data_is_left_alone() {
        let mut buffer: Vec<u8> = (0..4096).map(|n| (n * n / 7) as u8).collect();
        let before = buffer.clone();
        assert_eq!(wipe(&mut buffer), 0);
        assert_eq!(buffer, before);
    }

    #[test]
    fn mappings_are_told_apart() {
        let private = "7f00-7fff rw-p 00000000 00:00 0   [heap]";
        assert_eq!(writable(private), Some(0x7f00..0x7fff));
        assert_eq!(writable("7f00-7fff r--p 00000000 08:01 7 /lib/x"), None);
        assert_eq!(writable("7f00-7fff rw-s 00000000 00:01 7 /dev/zero"), None);
        assert_eq!(without(10..20, &(12..15)), [10..12, 15..20]);
        assert_eq!(without(10..20, &(0..5)), [10..10, 10..20]);
        assert_eq!(without(10..20, &(30..40)), [10..20, 20..20]);
    }

    #[test]
    fn a_forked_process_wipes_what_it_inherited() {
        let secret = secret();
        let copies = [secret.clone(), secret.clone()];
        // SAFETY: the child has one thread, and does not return.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let place = copies[0].as_ptr();
            let wiped = Scrubber::new(std::iter::once(&secret[..]))
                // SAFETY: one thread, which ends here.
                .and_then(|scrubber| unsafe { scrubber.wipe() });
            // SAFETY: an address of the copy, read past what the compiler knows of it.
            let first = unsafe { place.cast::<u64>().read_volatile() };
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(i32::from(!(wiped.is_ok_and(|n| n >= 8) && first == 0))) };
        }
        let mut status = 0;
        // SAFETY: waits for the child made above.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert_eq!(copies[0], secret, "the parent's");
    }
}
