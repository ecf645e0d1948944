//! Edits of texts as people write them, of any text, and of files.

use std::fs;

use proptest::prelude::*;
use serde_json::json;

use super::super::Config;
use super::*;

const TEMPLATE: &str = include_str!("../../../../cli/config.template.json5");

#[track_caller]
fn changes(before: &str, edits: &[Edit], after: &str) {
    assert_eq!(edited(before, edits).as_deref(), Ok(after));
}

fn slot(id: &str) -> Edit {
    Edit::set(&["plugins", "slots", "contextEngine"], id)
}

#[test]
fn a_value_is_replaced_in_its_own_quotes() {
    changes(
        "// mine\n{ plugins: { slots: { contextEngine: 'a', /* why */ memory: \"m\" } } } // end\n",
        &[slot("it's")],
        "// mine\n{ plugins: { slots: { contextEngine: 'it\\'s', /* why */ memory: \"m\" } } } // end\n",
    );
}

#[test]
fn what_is_new_looks_like_its_neighbours() {
    let off = [Edit::set(&["plugins", "entries", "b-c", "enabled"], false)];
    changes("{plugins: {entries: {a: {}}}}", &off, "{plugins: {entries: {a: {}, \"b-c\": {enabled: false}}}}");
    changes(
        "{\n  \"plugins\": {\n    \"entries\": {\n      \"a\": {}\n    }\n  }\n}\n",
        &off,
        "{\n  \"plugins\": {\n    \"entries\": {\n      \"a\": {},\n      \"b-c\": { \"enabled\": false }\n    }\n  }\n}\n",
    );
    changes(
        "{\r\n\tplugins: {\r\n\t\tentries: {\r\n\t\t\ta: {}, // first\r\n\t\t\t// last\r\n\t\t},\r\n\t},\r\n}\r\n",
        &off,
        "{\r\n\tplugins: {\r\n\t\tentries: {\r\n\t\t\ta: {}, // first\r\n\t\t\t\"b-c\": { enabled: false },\r\n\t\t\t// last\r\n\t\t},\r\n\t},\r\n}\r\n",
    );
    changes("{}", &[slot("a")], "{\n  plugins: { slots: { contextEngine: \"a\" } },\n}");
    changes("{ x: 1 // one\n}", &[slot("a")], "{ x: 1, plugins: { slots: { contextEngine: \"a\" } } // one\n}");
    changes("{ // none\n}", &[slot("a")], "{ // none\n  plugins: { slots: { contextEngine: \"a\" } },\n}");
    changes("{ /* none */ }", &[slot("a")], "{ /* none */ plugins: { slots: { contextEngine: \"a\" } } }");
}

/// Report F: what somebody commented out is theirs.
#[test]
fn a_file_of_comments_keeps_them() {
    let slots = "{\n  plugins: { slots: { contextEngine: \"a\" } },\n}\n";
    changes("// mine", &[slot("a")], &format!("// mine\n{slots}"));
    changes("\u{feff}/* mine */\n", &[slot("a")], &format!("\u{feff}/* mine */\n{slots}"));
    changes("// mine", &[Edit::remove(&["plugins", "deny"])], "// mine");
}

#[test]
fn a_list_is_made_added_to_and_emptied() {
    let add = |item: &str| Edit::add(&["plugins", "deny"], item);
    let drop = |item: &str| Edit::drop(&["plugins", "deny"], item);
    changes("{plugins: {}}", &[add("a"), add("b"), add("a")], "{plugins: {deny: [\"a\", \"b\"]}}");
    changes("{plugins: {deny: ['a', 'b', 'a']}}", &[drop("a")], "{plugins: {deny: ['b']}}");
    changes("{plugins: {deny: ['a', 'b']}}", &[drop("b")], "{plugins: {deny: ['a']}}");
    changes("{plugins: {deny: ['b' /* bad */]}}", &[drop("b")], "{plugins: {deny: [ /* bad */]}}");
    changes("{plugins: {deny: [\n  'b',\n]}}", &[drop("b"), drop("x")], "{plugins: {deny: []}}");
}

#[test]
fn what_goes_leaves_the_comments_around_it() {
    let gone = [Edit::remove(&["plugins", "entries", "a"])];
    changes(
        "{\n plugins: {\n  entries: {\n   // about a\n   a: {\n    enabled: true,\n   }, // why\n   // about b\n   b: {},\n  },\n },\n}",
        &gone,
        "{\n plugins: {\n  entries: {\n   // about a\n   // why\n   // about b\n   b: {},\n  },\n },\n}",
    );
    changes("{plugins: {entries: {a: {}}}}", &gone, "{plugins: {entries: {}}}");
    changes("{plugins: {entries: {b: {}, a: {}}}}", &gone, "{plugins: {entries: {b: {}}}}");
    changes("{plugins: {entries: {a: {}, b: {}}}}", &gone, "{plugins: {entries: {b: {}}}}");
    changes("{plugins: {}}", &gone, "{plugins: {}}");
}

/// The policy reads path and digest: what else an item says keeps nobody in, nor how its digest is written.
#[test]
fn a_trusted_item_is_forgotten_whatever_else_it_says() {
    let digest = "ab".repeat(32);
    let forget = |path: &str| Edit::Distrust(Trusted { path: path.into(), sha256: digest.clone() });
    for item in [
        format!("{{ path: '/w/a.so', sha256: '{digest}', note: 'mine' }}"),
        format!("{{ sha256: ' sha256:{}', path: '/w/a.so' }}", digest.to_uppercase()),
    ] {
        let other = format!("{{ path: '/w/a.so', sha256: '{}' }}", "cd".repeat(32));
        let before = format!("{{plugins: {{trusted: [{item}, {other}]}}}}");
        changes(&before, &[forget("/w/a.so")], &format!("{{plugins: {{trusted: [{other}]}}}}"));
        changes(&before, &[forget("/w/b.so")], &before);
    }
}

#[test]
fn an_edit_of_what_was_read_before_undoes_no_other() {
    let back = [slot("legacy").if_still("a"), Edit::remove(&["plugins", "slots", "memory"]).if_still("a")];
    changes("{plugins: {slots: {contextEngine: 'a'}}}", &back, "{plugins: {slots: {contextEngine: 'legacy'}}}");
    let meanwhile = "{plugins: {slots: {contextEngine: 'b', memory: 'b'}}}";
    changes(meanwhile, &back, meanwhile);
    changes("{}", &back, "{}");
}

#[test]
fn the_template_keeps_every_line_that_was_not_meant() {
    let edits = [
        slot("a"),
        Edit::set(&["plugins", "entries", "a", "pin"], "sha256:00"),
        Edit::add(&["plugins", "load", "paths"], "/p"),
        Edit::add(&["plugins", "allow"], "a"),
    ];
    let new = edited(TEMPLATE, &edits).expect("edited");
    let kept: Vec<&str> = TEMPLATE.lines().filter(|line| new.lines().any(|new| new == *line)).collect();
    let gone: Vec<&str> = TEMPLATE.lines().filter(|line| !kept.contains(line)).map(str::trim).collect();
    assert_eq!(gone, ["contextEngine: \"legacy\",", "paths: [],", "entries: {},"]);
    let config = reading::parse(&new).expect("a configuration");
    assert_eq!(config.plugins.entries["a"].pin.as_deref(), Some("sha256:00"));
    assert_eq!((config.plugins.load.paths.len(), config.plugins.allow), (1, Some(vec!["a".to_owned()])));
}

#[test]
fn what_cannot_be_read_or_changed_is_refused_with_its_place() {
    for (text, words) in [
        ("{ plugins: { slots: } }", "line 1"),
        ("{ plugins: { deny: 7 } }", "line 1"),
        ("[]", "line 1"),
        ("{ plugins: { entries: { a: { pin: { } } } } }", "line 1"),
    ] {
        let error = edited(text, &[slot("a")]).expect_err(text);
        assert!(error.contains(words), "{text}: {error}");
    }
    // Two of one name, and a name in disguise: no reader agrees about them.
    let error = edited(
        "{ plugins: { entries: { a: { config: { \\u0061: 1 } } } } }",
        &[Edit::set(&["plugins", "entries", "a", "config", "a"], 2)],
    );
    assert!(error.is_err_and(|error| error.contains("by hand")));
    assert!(edited("{}", &[Edit::set(&["plugins", "enabled"], "x")]).is_err_and(|error| error.contains("no longer")));
}

/// A text whose values, comments, commas and lines are anything.
fn object(depth: u32) -> BoxedStrategy<String> {
    let scalar = prop_oneof![
        Just("1".to_owned()),
        Just("'x'".to_owned()),
        Just("\"y // no comment\"".to_owned()),
        Just("[1, /* in */ 'two',]".to_owned()),
        Just("[]".to_owned()),
        Just(".5".to_owned()),
        Just("+0x1F".to_owned()),
        Just("'a\\\nb'".to_owned()),
    ];
    let value = if depth == 0 { scalar.boxed() } else { prop_oneof![scalar, object(depth - 1)].boxed() };
    let gap =
        || prop_oneof![Just(""), Just(" "), Just("\n    "), Just(" // c {\n"), Just(" /* d , } */ "), Just("\r\n\t")];
    let key = prop_oneof![Just("k"), Just("'k k'"), Just("\"kk\""), Just("$k"), Just("ключ")];
    let member = (gap(), key, gap(), gap(), value, gap());
    (proptest::collection::vec(member, 0..4), any::<bool>(), gap())
        .prop_map(|(members, trailing, last)| {
            let count = members.len();
            let mut text = "{".to_owned();
            for (at, (before, key, middle, space, value, after)) in members.into_iter().enumerate() {
                // One name once.
                let key = match key.strip_suffix(['\'', '"']) {
                    Some(open) => format!("{open}{at}{}", &key[key.len() - 1..]),
                    None => format!("{key}{at}"),
                };
                let comma = if at + 1 < count || trailing { "," } else { "" };
                text += &format!("{before}{key}{middle}:{space}{value}{after}{comma}");
            }
            text + last + "}"
        })
        .boxed()
}

fn comments(text: &str) -> usize {
    text.matches("// c {").count() + text.matches("/* d , } */").count() + text.matches("/* in */").count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_says_what_was_meant_keeps_its_comments_and_comes_back(inner in object(2), more in object(1)) {
        let text = format!("// head\n{{x: {more}, plugins: {{entries: {inner}}}}}\n");
        let before: Value = json5::from_str(&text).expect("JSON5");
        let path = ["plugins", "entries", "new-one"];
        // The values are no entries of an engine: what is looked at is the text.
        let set = splice::set(&text, &path, &json!({ "enabled": false })).expect("set");
        let mut wanted = before.clone();
        wanted["plugins"]["entries"]["new-one"] = json!({ "enabled": false });
        prop_assert_eq!(json5::from_str::<Value>(&set).expect("JSON5"), wanted, "{}", &set);
        prop_assert_eq!(comments(&set), comments(&text));
        let back = splice::remove(&set, &path).expect("removed").expect("was there");
        prop_assert_eq!(json5::from_str::<Value>(&back).expect("JSON5"), before.clone(), "{}", &back);
        prop_assert_eq!(comments(&back), comments(&text));
        if before["plugins"]["entries"].as_object().is_some_and(|entries| !entries.is_empty()) {
            prop_assert_eq!(&back, &text, "{}", &set);
        }
        for key in before["plugins"]["entries"].as_object().into_iter().flat_map(|entries| entries.keys()) {
            let path = ["plugins", "entries", key];
            let mut wanted = before.clone();
            wanted["plugins"]["entries"].as_object_mut().expect("an object").shift_remove(key);
            let gone = splice::remove(&text, &path).expect("removed").expect("was there");
            prop_assert_eq!(json5::from_str::<Value>(&gone).expect("JSON5"), wanted, "{}: {}", key, &gone);
            let mut wanted = before.clone();
            wanted["plugins"]["entries"][key] = json!("z'\"");
            let other = splice::set(&text, &path, &json!("z'\"")).expect("set");
            prop_assert_eq!(json5::from_str::<Value>(&other).expect("JSON5"), wanted, "{}", &other);
        }
    }
}

#[cfg(unix)]
mod files {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("a file").permissions().mode() & 0o777
    }

    #[test]
    fn a_new_file_is_its_owners_and_an_old_one_keeps_mode_and_link() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("home/config.json5");
        assert!(edit(&path, TEMPLATE, &[slot("a")]).expect("made"));
        assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
        assert!(!edit(&path, TEMPLATE, &[slot("a")]).expect("nothing to do"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("a mode");
        let link = root.path().join("link.json5");
        symlink(&path, &link).expect("linked");
        assert!(edit(&link, TEMPLATE, &[slot("b")]).expect("changed"));
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(mode(&path), 0o644);
        assert_eq!(Config::read(&path).expect("read").plugins.slots.context_engine.as_deref(), Some("b"));
        let left: Vec<_> = fs::read_dir(root.path().join("home")).expect("a folder").flatten().collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }

    /// Only root can give files away; others have nothing to keep.
    #[test]
    fn roots_change_leaves_the_file_and_its_lock_to_their_owner() {
        use std::os::unix::fs::{MetadataExt, chown};
        let root = tempfile::tempdir().expect("a folder");
        let (ann, old, new) = (root.path().join("ann"), root.path().join("ann/old.json5"), root.path().join("ann/new"));
        fs::create_dir(&ann).expect("a folder");
        fs::write(&old, "{}").expect("written");
        fs::set_permissions(&old, fs::Permissions::from_mode(0o600)).expect("a mode");
        let meant = match chown(&old, Some(54_321), Some(54_322)).and_then(|()| chown(&ann, Some(54_321), None)) {
            Ok(()) => (54_321, 54_322),
            Err(_) => fs::metadata(&old).map(|meta| (meta.uid(), meta.gid())).expect("a file"),
        };
        assert!(edit(&old, "{}", &[slot("a")]).expect("changed") && edit(&new, "{}", &[slot("a")]).expect("made"));
        let owner = |path: &Path| fs::metadata(path).map(|meta| (meta.uid(), meta.gid())).expect("a file");
        assert_eq!((owner(&old), mode(&old)), (meant, 0o600));
        for made in [new, ann.join(".old.json5.lock"), ann.join(".new.lock")] {
            assert_eq!(owner(&made).0, meant.0, "{}", made.display());
        }
    }

    #[test]
    fn what_is_prepared_and_not_committed_changes_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("config.json5");
        fs::write(&path, "{}").expect("written");
        drop(prepare(&path, "{}", &[slot("a")]).expect("prepared"));
        assert_eq!(fs::read_to_string(&path).expect("read"), "{}");
        let prepared = prepare(&path, "{}", &[slot("a")]).expect("prepared");
        fs::write(&path, "{ }").expect("an editor");
        assert!(prepared.commit().is_err_and(|error| error.to_string().contains("changed meanwhile")));
        assert_eq!(fs::read_dir(root.path()).expect("a folder").count(), 2, "the file and its lock");
    }

    #[test]
    fn a_broken_file_and_a_link_to_nowhere_are_left_alone() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("config.json5");
        fs::write(&path, "{ plugins: {\n  slots: [ } }").expect("written");
        let error = edit(&path, TEMPLATE, &[slot("a")]).expect_err("refused").to_string();
        assert!(error.contains("config.json5: changing it: ") && error.contains("line 2"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "{ plugins: {\n  slots: [ } }");
        let link = root.path().join("nowhere.json5");
        symlink(root.path().join("gone"), &link).expect("linked");
        edit(&link, TEMPLATE, &[slot("a")]).expect_err("refused");
    }

    #[test]
    fn commands_at_the_same_time_lose_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let path = root.path().join("config.json5");
        std::thread::scope(|scope| {
            for at in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    let id = format!("e{at}");
                    edit(path, "{}", &[Edit::set(&["plugins", "entries", &id, "enabled"], false)]).expect("changed");
                });
            }
        });
        assert_eq!(Config::read(&path).expect("read").plugins.entries.len(), 8);
    }
}
