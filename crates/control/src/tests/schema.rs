//! The same descriptions as JSON schemas, for programs that check what they send or get: `crates/control/schema`.

use std::fmt::Write as _;

use super::*;

/// A description that is being read.
struct Reader<'a> {
    rest: &'a str,
    /// Comments before what comes.
    about: Vec<&'a str>,
}

impl<'a> Reader<'a> {
    fn skip(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            let Some(comment) = self.rest.strip_prefix('#') else {
                return;
            };
            let (line, rest) = comment.split_once('\n').unwrap_or((comment, ""));
            self.about.push(line.trim());
            self.rest = rest;
        }
    }

    fn about(&mut self) -> String {
        self.skip();
        std::mem::take(&mut self.about).join(" ")
    }

    /// Whether it goes on with this, which is read then.
    fn has(&mut self, word: &str) -> bool {
        self.skip();
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, word: &str) {
        assert!(self.has(word), "{word} is not in {}", self.rest);
    }

    fn name(&mut self) -> &'a str {
        self.skip();
        let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let (name, rest) = self
            .rest
            .split_at(self.rest.find(end).unwrap_or(self.rest.len()));
        self.rest = rest;
        name
    }

    fn kind(&mut self) -> Value {
        if self.has("?") {
            let kind = self.kind();
            return json!({"anyOf": [kind, {"type": "null"}]});
        }
        if self.has("[]") {
            return json!({"type": "array", "items": self.kind()});
        }
        if self.has("[string]") {
            return json!({"type": "object", "additionalProperties": self.kind()});
        }
        match self.name() {
            "string" => json!({"type": "string"}),
            "int" => json!({"type": "integer"}),
            "float" => json!({"type": "number"}),
            "bool" => json!({"type": "boolean"}),
            "object" => json!({}),
            name => json!({"$ref": format!("#/$defs/{name}")}),
        }
    }

    /// `(a: int, b: ?string)`, or `(a, b)`.
    fn members(&mut self) -> Value {
        self.expect("(");
        let (mut fields, mut needed, mut words) = (Map::new(), Vec::new(), Vec::new());
        while !self.has(")") {
            let about = self.about();
            let name = self.name();
            if self.has(":") {
                self.skip();
                if !self.rest.starts_with('?') {
                    needed.push(name);
                }
                let mut kind = self.kind();
                if !about.is_empty() {
                    kind["description"] = about.into();
                }
                fields.insert(name.into(), kind);
            } else {
                words.push(name);
            }
            self.has(",");
        }
        match words.is_empty() {
            true => json!({"type": "object", "properties": fields, "required": needed}),
            false => json!({"enum": words}),
        }
    }
}

/// An interface as a schema: types, and of each method and error what goes with it.
fn schema(description: &str) -> Value {
    let mut reader = Reader {
        rest: description,
        about: Vec::new(),
    };
    let about = reader.about();
    reader.expect("interface");
    let name = reader.rest.trim_start().lines().next().unwrap_or("");
    reader.expect(name);
    let mut all = Map::new();
    loop {
        let about = reader.about();
        let mut put = |name: &str, mut members: Value, about: &str| {
            if !about.is_empty() {
                members["description"] = about.into();
            }
            all.insert(name.into(), members);
        };
        if reader.has("type ") || reader.has("error ") {
            let name = reader.name();
            put(name, reader.members(), &about);
        } else if reader.has("method ") {
            let name = reader.name();
            let mut asked = reader.members();
            // A word that a call does not have is refused.
            asked["additionalProperties"] = false.into();
            put(&format!("{name}.call"), asked, &about);
            reader.expect("->");
            put(&format!("{name}.reply"), reader.members(), "");
        } else {
            assert_eq!(reader.rest, "", "{name}");
            break;
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": name,
        "description": about,
        "$defs": all,
    })
}

/// What of a value a schema does not have so.
fn wrong(schema: &Value, defs: &Value, value: &Value, at: &str, found: &mut String) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/$defs/").expect("a definition");
        return wrong(&defs[name], defs, value, at, found);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let fits = |one: &Value| {
            let mut found = String::new();
            wrong(one, defs, value, at, &mut found);
            found.is_empty()
        };
        if !any.iter().any(fits) {
            let _ = writeln!(found, "{at}: {value} is none of {schema}");
        }
        return;
    }
    if let Some(words) = schema["enum"].as_array() {
        if !words.contains(value) {
            let _ = writeln!(found, "{at}: {value} is no such word");
        }
        return;
    }
    let fits = match schema["type"].as_str() {
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => true,
    };
    if !fits {
        let _ = writeln!(found, "{at}: {value} is no {}", schema["type"]);
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        wrong(&schema["items"], defs, item, &format!("{at}/{n}"), found);
    }
    let fields = schema["properties"].as_object();
    for (name, field) in value.as_object().into_iter().flatten() {
        match fields.and_then(|fields| fields.get(name)) {
            Some(kind) => wrong(kind, defs, field, &format!("{at}/{name}"), found),
            None if schema["additionalProperties"] == false => {
                let _ = writeln!(found, "{at}: {name} is unknown");
            }
            None => {}
        }
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        if value.get(name.as_str().expect("a name")).is_none() {
            let _ = writeln!(found, "{at}: {name} is missing");
        }
    }
}

fn found(interface: &str, name: &str, value: &Value) -> String {
    let interface = INTERFACES.iter().find(|one| one.name == interface);
    let schema = schema(&interface.expect("there").description());
    let mut found = String::new();
    wrong(
        &schema["$defs"][name],
        &schema["$defs"],
        value,
        name,
        &mut found,
    );
    found
}

#[test]
fn the_schemas_are_fresh() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema");
    for interface in INTERFACES {
        let file = dir.join(format!("{}.json", interface.name));
        let schema = serde_json::to_string_pretty(&schema(&interface.description()));
        let schema = schema.expect("JSON") + "\n";
        if std::env::var_os("HYPERNIC_WRITE").is_some() {
            std::fs::create_dir_all(&dir).expect("folder");
            std::fs::write(&file, &schema).expect("file");
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(kept == schema, "{} is stale: make docs", file.display());
    }
    let files = std::fs::read_dir(&dir).expect("folder").count();
    assert_eq!(
        files,
        INTERFACES.len(),
        "an interface that went has left its file"
    );
}

#[test]
fn calls_and_replies_are_as_the_schemas_say() {
    let nic = |more: Value| {
        let mut nic = json!({"name": "n0", "port": "switch:lan"});
        let more = more.as_object().cloned().unwrap_or_default();
        nic.as_object_mut().expect("words").extend(more);
        json!({"nic": nic})
    };
    let told = serde_json::to_value(News::default()).expect("JSON");
    for (interface, name, value, wrong) in [
        ("io.hypernic.Nic", "Add.call", nic(json!({"mtu": 1500})), ""),
        ("io.hypernic.Nic", "Add.call", nic(json!({"mtu": null})), ""),
        (
            "io.hypernic.Nic",
            "Add.call",
            nic(json!({"mtu": "much"})),
            "Add.call/nic/mtu",
        ),
        (
            "io.hypernic.Nic",
            "Add.call",
            json!({"nic": {"port": "null"}}),
            "\"name\" is missing",
        ),
        (
            "io.hypernic.Nic",
            "Add.call",
            json!({"nick": {}}),
            "nick is unknown",
        ),
        (
            "io.hypernic.Vf",
            "Set.call",
            json!({"nic": "a", "change": {"state": "auto"}}),
            "",
        ),
        (
            "io.hypernic.Vf",
            "Set.call",
            json!({"nic": "a", "change": {"state": "up"}}),
            "is none of",
        ),
        (
            "io.hypernic.Metrics",
            "Section",
            json!({"kind": "nic", "name": "n", "values": {"a": 1}}),
            "",
        ),
        (
            "io.hypernic.Control",
            "InUse",
            json!({"kind": "switch", "name": "lan", "by": ["a"], "message": "m"}),
            "",
        ),
        ("io.hypernic.Monitor", "Subscribe.reply", told, ""),
    ] {
        let found = found(interface, name, &value);
        assert_eq!(
            found.is_empty(),
            wrong.is_empty(),
            "{name} {value}: {found}"
        );
        assert!(found.contains(wrong), "{name} {value}: {found}");
    }
}
