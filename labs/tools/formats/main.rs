//! [`formats`] as a program of its own.

fn main() -> std::process::ExitCode {
    formats::main()
}
