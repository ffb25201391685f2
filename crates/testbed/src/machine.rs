//! A description of the machine that figures are measured on.

use std::fs;

use rustix::system::uname;
use serde::Serialize;

use crate::nginx::Binary;

/// The CPU features that the kernels or libcrypto choose their code by.
const FEATURES: [&str; 12] = [
    "aes",
    "adx",
    "avx2",
    "bmi2",
    "pclmulqdq",
    "sha_ni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512ifma",
    "vaes",
    "vpclmulqdq",
];

/// A description of the machine, for the record.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The model name of the CPU.
    pub cpu: String,
    /// The features of the CPU by which code is chosen.
    pub features: Vec<String>,
    /// The number of logical CPUs.
    pub logical_cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// The libcrypto that this program runs with.
    pub openssl: &'static str,
    /// The version of nginx and the OpenSSL it runs with, if one takes part.
    pub nginx: Option<String>,
}

impl Machine {
    /// Describes this machine, and `nginx` if it takes part.
    pub fn describe(nginx: Option<&Binary>) -> Machine {
        // Without /proc there is no description, but still a measurement.
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Machine {
            cpu: cpuinfo_field(&cpuinfo, "model name")
                .unwrap_or("unknown")
                .to_owned(),
            features: features(&cpuinfo),
            logical_cpus: cpuinfo
                .lines()
                .filter(|line| line.starts_with("processor"))
                .count(),
            kernel: uname().release().to_string_lossy().into_owned(),
            openssl: openssl::version::version(),
            nginx: nginx.map(|binary| {
                let openssl = binary.openssl.as_deref().unwrap_or("unknown TLS library");
                format!("nginx/{} with {openssl}", binary.version)
            }),
        }
    }
}

/// The version of the libcrypto that this program runs with, as in 0x30000160 for 3.0.22
/// (OPENSSL_version_num(3)).
pub fn openssl_version_number() -> i64 {
    openssl::version::number()
}

fn features(cpuinfo: &str) -> Vec<String> {
    let flags: Vec<&str> = cpuinfo_field(cpuinfo, "flags")
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    FEATURES
        .into_iter()
        .filter(|feature| flags.contains(feature))
        .map(str::to_owned)
        .collect()
}

fn cpuinfo_field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim_end() == name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_whole_words() {
        let cpuinfo =
            "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu avx512f vaes\n";
        assert_eq!(features(cpuinfo), ["avx512f", "vaes"]);
        assert_eq!(
            cpuinfo_field(cpuinfo, "model name"),
            Some("Some CPU @ 2.50GHz")
        );
        assert_eq!(features("flags : avx512f_not aesni"), Vec::<String>::new());
    }

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::describe(None);
        assert_ne!(machine.cpu, "unknown");
        assert!(machine.logical_cpus > 0);
        assert!(!machine.kernel.is_empty());
    }
}
