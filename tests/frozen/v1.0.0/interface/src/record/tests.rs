use super::*;

const FIELDS: RecordFields = RecordFields {
    id: "sample",
    name: "A \"quoted\" \\ name\n é",
    version: "0.1.0",
    owns_compaction: true,
    accepted_host_params: Some(&["sessionKey", "prompt"]),
    turn_maintenance_mode: Some("background"),
    current_turn_fence: Some("before-current-turn-entry-v1"),
    turn_advancement_idempotency: None,
    host_requirements: &[("agent-run", &["assemble-before-prompt"], Some("use another host"))],
    extensions: &["tools/1"],
    panic: "unwind",
};

fn framed() -> Vec<u8> {
    encode::<{ encoded_len(&FIELDS) }>(&FIELDS).to_vec()
}

#[test]
fn what_the_macro_writes_is_what_a_loader_reads() {
    let record = parse(&framed()).expect("a record");
    assert_eq!(record.schema_version, SCHEMA_VERSION);
    assert_eq!(record.engine.name, FIELDS.name);
    assert_eq!(
        record.engine.accepted_host_params.as_deref(),
        Some(&["sessionKey".to_owned(), "prompt".to_owned()][..])
    );
    assert_eq!(record.engine.host_requirements[0].unsupported_message.as_deref(), Some("use another host"));
    assert_eq!(record.engine.transcript_semantics.turn_advancement_idempotency, None);
    assert_eq!(record.extensions, ["tools/1"]);
    assert_eq!(record.panic, "unwind");
    assert!(record.target.contains('-') && record.compiler.starts_with("rustc"), "{record:?}");
}

#[test]
fn bytes_after_the_record_are_padding() {
    let mut bytes = framed();
    bytes.extend([0; 64]);
    assert!(parse(&bytes).is_ok());
}

#[test]
fn each_wrong_frame_has_its_own_error() {
    let good = framed();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        parse(&bytes).map(|_| ()).map_err(|error| error.to_string())
    };
    let cut = |len: usize| parse(&good[..len]).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(cut(0), Err("record is cut off: expected 16 bytes, found 0".into()));
    assert_eq!(
        cut(good.len() - 1),
        Err(format!("record is cut off: expected {} bytes, found {}", good.len(), good.len() - 1))
    );
    assert_eq!(changed(0, b'X'), Err("record does not start with its magic bytes".into()));
    assert_eq!(changed(8, 9), Err("record format 9: this host reads format 1".into()));
    assert_eq!(changed(15, 1), Err(format!("record of {} bytes: at most 65536 are read", (1 << 24) + good.len() - 16)));
    assert!(changed(16, b'[').is_err_and(|text| text.starts_with("record is no valid JSON record")));
}

#[test]
fn members_of_a_later_format_are_ignored() {
    let json =
        br#"{"schemaVersion":1,"interfaceVersion":"1.9.0","engine":{"id":"a","name":"A","version":"1","new":[1]},
        "panic":"unwind","target":"t","compiler":"c","later":{}}"#;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(RECORD_FORMAT_VERSION.to_le_bytes());
    bytes.extend((json.len() as u32).to_le_bytes());
    bytes.extend(json);
    assert_eq!(parse(&bytes).expect("a record").engine.id, "a");
}
