//! Linker options of the module.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // OpenSSL unloads providers. Threads that have used this one still have to run destructors of
    // their thread-local instances, whose code is in the module.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
