//! Each step as a host sees the directory after it, and as a kill leaves it.

use std::collections::BTreeSet;

use tempfile::TempDir;

use super::super::leftovers;
use super::*;

/// A thing in the plugins directory: a library, or a folder where the name has no ending, with these bytes.
type Thing = (&'static str, &'static str);

/// A plugins directory, and a new build of the first of `before` to put into it.
struct Case {
    plugins: TempDir,
    made: &'static str,
    before: Vec<PathBuf>,
    target: PathBuf,
}

fn make(path: &Path, bytes: &str) {
    if path.extension().is_some() {
        return fs::write(path, bytes).expect("written");
    }
    fs::create_dir(path).expect("a folder");
    fs::write(path.join("plugin.json"), "{}").expect("written");
    fs::write(path.join(format!("engine.{LIBRARY_EXTENSION}")), bytes).expect("written");
}

impl Case {
    fn new(made: &'static str, before: &[Thing], others: &[Thing], target: &str) -> Case {
        let plugins = tempfile::tempdir().expect("a folder");
        fs::create_dir(plugins.path().join(".installing-1")).expect("a folder");
        make(&plugins.path().join(".installing-1").join(made), "new");
        for (name, bytes) in before.iter().chain(others) {
            make(&plugins.path().join(name), bytes);
        }
        let before = before.iter().map(|(name, _)| plugins.path().join(name)).collect();
        let target = plugins.path().join(target);
        Case { plugins, made, before, target }
    }

    /// Takes `count` steps of those there are, and is killed.
    fn take(&self, count: usize) -> usize {
        let work = self.plugins.path().join(".installing-1");
        let (made, before) = (work.join(self.made), self.before.as_slice());
        let placing = Placing { id: "a", version: "1.0.0", work: &work, made: &made, target: &self.target, before };
        let steps = plan(&placing).expect("a plan");
        steps.iter().take(count).for_each(|step| step.take().expect("taken"));
        steps.len()
    }

    /// The builds a host finds, by what is in them.
    fn seen(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.plugins.path()).expect("a folder").flatten().map(|entry| entry.path());
        let library = |path: PathBuf| match path.join("plugin.json").exists() {
            true => Some(path.join(format!("engine.{LIBRARY_EXTENSION}"))),
            false => Some(path).filter(|path| path.extension() == Some(OsStr::new(LIBRARY_EXTENSION))),
        };
        let libraries =
            entries.filter(|path| !path.file_name().unwrap_or_default().as_encoded_bytes().starts_with(b"."));
        libraries.filter_map(library).map(|path| fs::read_to_string(path).expect("a library")).collect()
    }
}

/// Report "kill between the renames": whenever it ends, there is the old build or the new one, and nothing of both.
#[test]
fn after_each_step_there_is_one_build() {
    let file = "x.so";
    for (made, before, others, target) in [
        (file, vec![], vec![], "a.so"),
        (file, vec![("a.so", "old")], vec![], "a.so"),
        ("x", vec![("a", "old")], vec![], "a"),
        // Under another name.
        (file, vec![("liba.so", "old")], vec![], "a.so"),
        ("x", vec![("liba.so", "old")], vec![], "a"),
        ("x", vec![("topic", "old")], vec![], "a"),
        (file, vec![("topic", "old")], vec![], "a.so"),
        (file, vec![("a", "old")], vec![], "a.so"),
        // Several copies of it.
        (file, vec![("liba.so", "old"), ("a.so", "old")], vec![], "a.so"),
        (file, vec![("a.so", "old"), ("b.so", "old"), ("c", "old")], vec![], "a.so"),
        ("x", vec![("topic", "old"), ("a", "old")], vec![], "a"),
        // Its name is another's, and --force was given.
        (file, vec![("liba.so", "old")], vec![("a.so", "other")], "a.so"),
        ("x", vec![("topic", "old")], vec![("a", "other")], "a"),
        (file, vec![("topic", "old")], vec![("a.so", "other")], "a.so"),
    ] {
        let all = Case::new(made, &before, &others, target).take(0);
        for count in 0..=all {
            let case = Case::new(made, &before, &others, target);
            case.take(count);
            leftovers::clear(case.plugins.path());
            let seen = case.seen();
            let mine: Vec<&String> = seen.iter().filter(|bytes| *bytes != "other").collect();
            let context = format!("{before:?}, {others:?} → {target}, {count} of {all} steps: {seen:?}");
            assert_eq!(mine.len(), usize::from(!before.is_empty() || count == all), "{context}");
            if count == all {
                assert!(seen.len() == 1 && seen.contains("new"), "{context}");
            }
        }
    }
}

/// Where names cannot be swapped at once, the old build is out of its place for a moment.
#[test]
fn a_kill_between_two_renames_loses_nothing() {
    let case = Case::new("x", &[("a", "old")], &[], "a");
    let aside = tempfile::Builder::new().prefix(ASIDE).tempdir_in(case.plugins.path()).expect("a folder").keep();
    fs::rename(&case.target, aside.join("a")).expect("moved aside");
    assert_eq!(case.seen(), BTreeSet::new());
    leftovers::clear(case.plugins.path());
    assert_eq!(case.seen(), BTreeSet::from(["old".to_owned()]));
    let made = case.plugins.path().join(".installing-1/x");
    for expected in ["new", "old"] {
        exchange_by_names(&made, &case.target).expect("exchanged");
        assert_eq!(case.seen(), BTreeSet::from([expected.to_owned()]));
    }
    let nothing = case.plugins.path().join("nothing");
    exchange_by_names(&nothing, &case.target).expect_err("there is nothing");
    assert_eq!((case.seen().len(), fs::read_dir(case.plugins.path()).expect("a folder").count()), (1, 2));
}

/// A folder is there at any time, whoever looks.
#[cfg(any(target_os = "linux", target_vendor = "apple"))]
#[test]
fn a_folder_is_never_out_of_its_place() {
    let case = Case::new("x", &[("a", "old")], &[], "a");
    let made = case.plugins.path().join(".installing-1/x");
    let done = std::sync::atomic::AtomicBool::new(false);
    let missed = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut missed = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                missed += usize::from(!case.target.join("plugin.json").exists());
            }
            missed
        });
        (0..2_000).for_each(|_| exchange(&made, &case.target).expect("exchanged"));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        looks.join().expect("it looked")
    });
    assert_eq!(missed, 0);
}

#[test]
fn what_fails_half_way_is_taken_back() {
    let case = Case::new("x", &[("topic", "old"), ("b.so", "old")], &[], "a");
    let work = case.plugins.path().join(".installing-1");
    let (missing, before) = (work.join("missing"), case.before.as_slice());
    let placing = Placing { id: "a", version: "1.0.0", work: &work, made: &missing, target: &case.target, before };
    place(&placing).expect_err("nothing was made");
    assert!(case.before.iter().all(|path| path.exists()) && case.seen().len() == 1);
}
