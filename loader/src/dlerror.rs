//! From the words of the system's loader to what is missing and what to do.
//!
//! Decision: the text is all there is; `dlerror` has no codes. Each known sentence of glibc and musl becomes a problem of
//! its own, everything else is passed on as it is. The sentences of macOS are from its documentation and were never met;
//! Windows names neither the library nor the symbol.

use std::path::Path;

use crate::error::Problem;
use crate::text::on_one_line;

/// Text that introduces the name of a library which is not there, and the text behind the name.
const MISSING_LIBRARY: [(&str, &str); 3] = [
    ("", ": cannot open shared object file: No such file or directory"),
    ("Error loading shared library ", ": No such file or directory"),
    ("Library not loaded: ", " Referenced from:"),
];

/// How an allocator that insists on static TLS fails to load: glibc's words and musl's.
const STATIC_TLS: [&str; 2] =
    ["cannot allocate memory in static TLS block", "initial-exec TLS resolves to dynamic definition"];

/// What `said`, on one line, means for the library at `path`.
pub(crate) fn problem(path: &Path, said: &str) -> Problem {
    let own = path.to_string_lossy();
    let name = |text: &str| on_one_line(text.trim());
    if STATIC_TLS.iter().any(|words| said.contains(words)) {
        return Problem::StaticTls;
    }
    for (before, after) in MISSING_LIBRARY {
        if let Some(library) = between(said, before, after)
            && library != own
        {
            return Problem::MissingLibrary { library: name(library) };
        }
    }
    // glibc: `/lib/libm.so.6: version `GLIBC_2.38' not found (required by /x.so)`
    if let Some((library, rest)) = said.split_once(": version `")
        && let Some((version, _)) = rest.split_once("' not found")
    {
        let library = library.rsplit('/').next().unwrap_or(library);
        return Problem::SymbolVersion { version: name(version), library: name(library) };
    }
    // glibc: `/x.so: symbol f, version V_1 not defined in file libx.so.1 with link time reference`
    if let Some(versioned) = between(said, ": symbol ", " with link time reference")
        && let Some((symbol, library)) = versioned.split_once(" not defined in file ")
        && let Some((_, version)) = symbol.split_once(" version ")
    {
        return Problem::SymbolVersion { version: name(version), library: name(library) };
    }
    symbol(said).map_or_else(
        || Problem::Dlopen { reason: on_one_line(said) },
        |symbol| Problem::UndefinedSymbol { symbol: name(symbol) },
    )
}

/// The symbol nobody has, as glibc, musl and macOS name it.
fn symbol(said: &str) -> Option<&str> {
    let named = said.split_once("undefined symbol: ").map(|(_, symbol)| symbol);
    let named = named.or_else(|| {
        let relocated = between(said, "Error relocating ", ": symbol not found")?;
        relocated.rsplit_once(": ").map(|(_, symbol)| symbol)
    });
    let named = named.or_else(|| said.split_once("Symbol not found: ").map(|(_, symbol)| symbol))?;
    named.split_whitespace().next().map(|symbol| symbol.trim_end_matches(','))
}

/// What stands between the first `before` and the `after` that follows it.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expected: &str) {
        assert_eq!(problem(Path::new("/stages/x.so"), said).to_string(), expected);
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let expected = "it needs libnope.so.9, which this system does not have; install it";
        check("libnope.so.9: cannot open shared object file: No such file or directory", expected);
        check(
            "Error loading shared library libnope.so.9: No such file or directory (needed by /stages/x.so)",
            expected,
        );
        check(
            "dlopen(/stages/x.so, 0x0006): Library not loaded: libnope.so.9 Referenced from: /stages/x.so Reason: no file",
            expected,
        );
    }

    #[test]
    fn a_symbol_nobody_has_is_named() {
        let expected = "it needs the symbol `frobnicate`, which no library here has; \
                        link the library that has it, or build the engine for this system";
        check("/stages/x.so: undefined symbol: frobnicate", expected);
        check("/stages/x.so: undefined symbol: frobnicate, version FROB_1.0", expected);
        check("Error relocating /stages/x.so: frobnicate: symbol not found", expected);
        check("dlopen(/stages/x.so, 0x0006): Symbol not found: frobnicate Referenced from: /stages/x.so", expected);
    }

    #[test]
    fn a_library_that_is_too_old_is_named_with_the_version() {
        check(
            "/lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.38' not found (required by /stages/x.so)",
            "it needs `GLIBC_2.38` of libm.so.6, and the one here is older; \
             build the engine on an older system, or upgrade this one",
        );
        for said in [
            "/stages/x.so: symbol frobnicate, version FROB_2.0 not defined in file libfrob.so.1 with link time reference",
            "/stages/x.so: symbol frobnicate version FROB_2.0 not defined in file libfrob.so.1 with link time reference",
        ] {
            check(
                said,
                "it needs `FROB_2.0` of libfrob.so.1, and the one here is older; \
                 build the engine on an older system, or upgrade this one",
            );
        }
    }

    #[test]
    fn an_allocator_that_wants_static_memory_is_told_its_switch() {
        let expected = "its thread-local memory does not fit into a running process, as with jemalloc or mimalloc; \
                        build it with their feature `disable_initial_exec_tls` or `local_dynamic_tls`";
        check("/stages/x.so: cannot allocate memory in static TLS block", expected);
        check(
            "Error relocating /stages/x.so: tcache: initial-exec TLS resolves to dynamic definition in /stages/x.so",
            expected,
        );
    }

    #[test]
    fn everything_else_is_passed_on() {
        let passed_on = |said: &str| {
            format!("the system cannot load it: {said}; install what it needs, or build it for this system")
        };
        for said in [
            "/stages/x.so: cannot open shared object file: No such file or directory",
            "libz.so.1: cannot open shared object file: Permission denied",
            "/usr/lib/libz.so.1: wrong ELF class: ELFCLASS32",
            "/stages/x.so: file too short",
            "/stages/x.so: cannot enable executable stack as shared object requires: Invalid argument",
            "Error loading shared library /stages/x.so: Exec format error",
            "",
        ] {
            check(said, &passed_on(said));
        }
        check("\u{1b}[31mred", &passed_on("\\u{1b}[31mred"));
    }
}
