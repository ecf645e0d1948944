//! Building: the plugins in `engines/`, the command, and crates that only one test needs.
//!
//! Decision: plain cargo, into folders beside the ones this test was built into, so that a second run finds everything
//! fresh. abi_stable is what costs (half a minute each time), so the plugins are built by one invocation and one-off
//! crates share their folder. A lock on a file keeps test programs that run at the same time out of each other's way.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX, EXE_SUFFIX};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Instant;

/// The project's folder.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the project")
}

/// The folder with the profile folders (`debug`, `release`) this test was built into.
pub fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("this program has a path");
    let deps = exe.ancestors().nth(1).is_some_and(|folder| folder.ends_with("deps"));
    let up = if deps { 3 } else { 2 };
    exe.ancestors().nth(up).expect("cargo builds tests into <target>/<profile>/deps, and programs above").to_owned()
}

/// Name of the library that package `name` builds.
pub fn library_name(name: &str) -> String {
    format!("{DLL_PREFIX}{}{DLL_SUFFIX}", name.replace('-', "_"))
}

/// The plugin of `engines/<name>`, built.
pub fn plugin(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| Build::engines("test-plugins").arg("--workspace").run());
    folder.join(library_name(name))
}

/// What else `engines/plain` is built into: the static archive `libplain.a`, the executable `plain`.
pub fn plain(file: &str) -> PathBuf {
    plugin("plain").with_file_name(file)
}

/// The `context-engine` command and the example plugins, built as this test was.
fn product() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = Build::new(&workspace().join("Cargo.toml"), &target());
        ["context-engine", "sliding-window", "strict-v0"]
            .into_iter()
            .fold(build, |build, package| build.arg(&format!("--package={package}")))
            .profile(profile)
            .run()
    })
}

/// The `context-engine` command.
pub fn command() -> PathBuf {
    product().join(format!("context-engine{EXE_SUFFIX}"))
}

/// The library of an example plugin.
pub fn example(name: &str) -> PathBuf {
    product().join(library_name(name))
}

/// The installed toolchain that answers to `wanted`: `nightly`, or a version such as `1.91`, whatever its last number and
/// its target.
///
/// # Errors
/// What there is instead, for people.
pub fn toolchain(wanted: &str) -> Result<String, String> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    let listed = listed.map_err(|error| format!("rustup cannot be run ({error})"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let answers =
        |name: &&&str| name.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']));
    match names.iter().find(answers) {
        Some(name) => Ok((*name).to_owned()),
        None => Err(format!("no toolchain {wanted} among {}", names.join(", "))),
    }
}

/// One run of cargo.
pub struct Build {
    command: Command,
    verb: &'static str,
    args: Vec<OsString>,
    target: PathBuf,
    profile: &'static str,
}

impl Build {
    /// A build of `manifest` into `target`.
    pub fn new(manifest: &Path, target: &Path) -> Build {
        let command = Command::new(env!("CARGO"));
        let place = ["--manifest-path".into(), manifest.into(), "--target-dir".into(), target.into()];
        Build { command, verb: "build", args: place.into(), target: target.to_owned(), profile: "dev" }
    }

    /// A build of `manifest` as its author does it, into the folder `name` beside the host's: the flags of whoever runs
    /// the tests are for the host.
    pub fn by_author(manifest: &Path, name: &str) -> Build {
        let mut build = Build::new(manifest, &target().join(name));
        for inherited in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"] {
            build.command.env_remove(inherited);
        }
        build
    }

    /// A build of `engines/` into the folder `name` beside the host's.
    pub fn engines(name: &str) -> Build {
        Build::by_author(&workspace().join("tests/engines/Cargo.toml"), name)
    }

    /// By the compiler of another toolchain.
    #[must_use]
    pub fn by(mut self, toolchain: &str) -> Build {
        let mut command = Command::new("rustup");
        command.args(["run", toolchain, "cargo"]);
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        // What this test's own toolchain set for it.
        for inherited in ["RUSTUP_TOOLCHAIN", "RUSTC", "RUSTDOC", "CARGO"] {
            command.env_remove(inherited);
        }
        self.command = command;
        self
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Build {
        self.args.push(arg.into());
        self
    }

    /// With another subcommand than `build`.
    #[must_use]
    pub fn cargo(mut self, verb: &'static str) -> Build {
        self.verb = verb;
        self
    }

    /// With an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Build {
        self.command.env(name, value);
        self
    }

    /// In another profile.
    #[must_use]
    pub fn profile(mut self, profile: &'static str) -> Build {
        self.profile = profile;
        self
    }

    /// Runs cargo; returns what it says and how it ended.
    pub fn output(mut self) -> Output {
        let _lock = self.lock();
        self.cargo_says()
    }

    /// Runs cargo; returns the folder with what was built.
    ///
    /// # Panics
    /// With cargo's output, when the build fails.
    pub fn run(self) -> PathBuf {
        self.run_and(Path::to_owned)
    }

    /// Runs cargo and has `take` fetch what was built, before another build can write files of the same names.
    ///
    /// # Panics
    /// With cargo's output, when the build fails.
    pub fn run_and<T>(mut self, take: impl FnOnce(&Path) -> T) -> T {
        let _lock = self.lock();
        let output = self.cargo_says();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        take(&self.target.join(if self.profile == "dev" { "debug" } else { self.profile }))
    }

    fn lock(&self) -> File {
        fs::create_dir_all(&self.target).expect("a target folder");
        let lock = File::create(self.target.join(".test-builds")).expect("a lock file");
        lock.lock().expect("locked");
        lock
    }

    #[allow(clippy::print_stderr, reason = "how long builds take decides how many there may be")]
    fn cargo_says(&mut self) -> Output {
        let started = Instant::now();
        let arguments = [self.verb, "--quiet", "--profile", self.profile];
        let output = self.command.args(arguments).args(&self.args).output().expect("cargo can be run");
        let manifest = Path::new(&self.args[1]).display();
        eprintln!("{manifest} ({}): {:.1} s", self.profile, started.elapsed().as_secs_f64());
        output
    }
}
