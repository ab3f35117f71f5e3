//! Changes of a configuration file, which keep what else is in it: comments, order, blank lines.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use control::VfChange;
use toml::Value;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::text::{POLICY, VFS, in_order, table};
use super::types::{HostConfig, NicConfig, SwitchConfig};
use crate::guard::Storm;
use crate::spec::PortSpec;

/// The word of a switch for its ports.
const PORTS: &str = "ports";

/// One change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Edit<'a> {
    /// A NIC with these words.
    AddNic(&'a NicConfig),
    /// Not that NIC, nor that chip.
    RemoveNic(&'a str),
    /// A chip of this name, with these words.
    AddChip(&'a str, &'a toml::Table),
    /// A switch with these words.
    AddSwitch(&'a SwitchConfig),
    /// Not that switch.
    RemoveSwitch(&'a str),
    /// A switch with these words, but the ports that it has.
    SetSwitch(&'a SwitchConfig),
    /// Whether the cable of a NIC is in.
    SetLink(&'a str, bool),
    /// A port of a switch.
    AddPort(&'a str, &'a PortSpec),
    /// Not a port that is written in one of these ways.
    RemovePort(&'a str, &'a [&'a PortSpec]),
    /// Words of a chip's virtual function.
    SetVf(&'a str, u32, &'a VfChange),
    /// Another policy of a chip's virtual function.
    PutVf(&'a str, u32, &'a toml::Table),
    /// Another text altogether.
    Text(&'a str),
}

/// A file's new contents, written beside it. It takes its place when this is kept, and goes otherwise.
#[derive(Debug)]
pub(crate) struct Written {
    new: PathBuf,
    file: PathBuf,
}

impl Written {
    /// Writes what a file is to be.
    ///
    /// # Errors
    /// One line.
    pub fn beside(file: &Path, text: &str) -> Result<Self, String> {
        let failed = |path: &Path, error: io::Error| {
            format!(
                "cannot write {}: {error}; the file is as it was",
                path.display()
            )
        };
        // A link stays one.
        let real = file.canonicalize();
        let file = real.map_err(|error| failed(file, error))?;
        let mut name = std::ffi::OsString::from(".");
        name.push(file.file_name().unwrap_or_default());
        name.push(".new");
        let written = Written {
            new: file.with_file_name(name),
            file,
        };
        match written.write(text) {
            Ok(()) => Ok(written),
            Err(error) => Err(failed(&written.new, error)),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut new = File::create(&self.new)?;
        new.set_permissions(fs::metadata(&self.file)?.permissions())?;
        new.write_all(text.as_bytes())?;
        new.sync_all()
    }

    /// It takes the file's place.
    ///
    /// # Errors
    /// One line.
    pub fn keep(self) -> Result<(), String> {
        let kept = fs::rename(&self.new, &self.file);
        let kept = kept.and_then(|()| match self.file.parent() {
            Some(folder) => File::open(folder)?.sync_all(),
            None => Ok(()),
        });
        kept.map_err(|error| format!("cannot write {}: {error}", self.file.display()))
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        // After it was kept, there is none.
        let _ = fs::remove_file(&self.new);
    }
}

/// The text of a file after a change.
///
/// # Errors
/// The text cannot be changed so: one line.
pub(crate) fn edited(text: &str, edit: Edit) -> Result<String, String> {
    if let Edit::Text(text) = edit {
        return Ok(text.to_owned());
    }
    let doc = text.parse::<DocumentMut>();
    let mut doc = doc.map_err(|error| error.message().replace('\n', "; "))?;
    match edit {
        Edit::AddNic(nic) => put(all(&mut doc, "nic")?, &nic.name, &nic.table(), ""),
        Edit::SetLink(nic, up) => link(all(&mut doc, "nic")?, nic, up)?,
        Edit::AddSwitch(switch) => {
            let mut words = table(&switch.words());
            if switch.ports.is_empty() {
                words.remove("ports");
            }
            put(all(&mut doc, "switch")?, &switch.name, &words, "");
        }
        Edit::SetSwitch(switch) => {
            let mut words = table(&switch.words());
            words.remove(PORTS);
            put(all(&mut doc, "switch")?, &switch.name, &words, PORTS);
        }
        Edit::AddChip(name, words) => chip(all(&mut doc, "nic")?, name, words)?,
        Edit::RemoveNic(name) => take(&mut doc, "nic", name)?,
        Edit::RemoveSwitch(name) => take(&mut doc, "switch", name)?,
        Edit::AddPort(switch, port) => ports(&mut doc, switch, &[port], true)?,
        Edit::RemovePort(switch, port) => ports(&mut doc, switch, port, false)?,
        Edit::SetVf(chip, index, change) => vf(&mut doc, chip, index, change)?,
        Edit::PutVf(chip, index, policy) => put_vf(&mut doc, chip, index, policy)?,
        Edit::Text(_) => {}
    }
    Ok(doc.to_string())
}

/// The tables of a kind.
fn all<'a>(doc: &'a mut DocumentMut, kind: &str) -> Result<&'a mut ArrayOfTables, String> {
    let new = || Item::ArrayOfTables(ArrayOfTables::new());
    let item = doc.entry(kind).or_insert_with(new);
    item.as_array_of_tables_mut().ok_or_else(|| {
        format!("{kind} is no [[{kind}]] in the file: write it so, and it can be changed by calls")
    })
}

fn is_named(table: &Table, name: &str) -> bool {
    table.get("name").and_then(Item::as_str) == Some(name)
}

/// A table of that name with these words, and with one that it has.
fn put(tables: &mut ArrayOfTables, name: &str, words: &toml::Table, stays: &str) {
    let there = tables.iter_mut().find(|table| is_named(table, name));
    if let Some(table) = there {
        table.retain(|key, _| words.contains_key(key) || key == stays);
        return fill(table, words);
    }
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    fill(&mut table, words);
    tables.push(table);
}

fn fill(table: &mut Table, words: &toml::Table) {
    for (key, value) in in_order(words) {
        let value = item(value);
        match table.get_mut(key) {
            // Its comment stays.
            Some(Item::Value(there)) => {
                let decor = there.decor().clone();
                *there = value;
                *there.decor_mut() = decor;
            }
            _ => {
                table.insert(key, Item::Value(value));
            }
        }
    }
}

fn item(value: &Value) -> toml_edit::Value {
    match value {
        Value::String(text) => text.as_str().into(),
        Value::Integer(number) => (*number).into(),
        Value::Float(number) => (*number).into(),
        Value::Boolean(on) => (*on).into(),
        Value::Datetime(time) => time.to_string().into(),
        Value::Array(values) => values.iter().map(item).collect(),
        Value::Table(words) => {
            let words = in_order(words);
            let words = words.into_iter().map(|(key, value)| (key, item(value)));
            toml_edit::Value::InlineTable(words.collect())
        }
    }
}

fn link(tables: &mut ArrayOfTables, name: &str, up: bool) -> Result<(), String> {
    let nic = tables.iter_mut().find(|table| is_named(table, name));
    let nic =
        nic.ok_or_else(|| format!("the file has no [[nic]] {name:?}: add it with persist first"))?;
    if up {
        nic.remove("link");
    } else {
        fill(
            nic,
            &toml::Table::from_iter([("link".into(), "down".into())]),
        );
    }
    Ok(())
}

/// A chip of that name with these words, those of its VFs included.
fn chip(tables: &mut ArrayOfTables, name: &str, words: &toml::Table) -> Result<(), String> {
    let mut words = words.clone();
    let vfs = words.remove(VFS);
    let vfs = vfs.as_ref().and_then(Value::as_array);
    let vfs = vfs.into_iter().flatten().filter_map(Value::as_table);
    let vfs: Vec<&toml::Table> = vfs.collect();
    put(tables, name, &words, VFS);
    let Some(table) = tables.iter_mut().find(|table| is_named(table, name)) else {
        return Ok(());
    };
    if vfs.is_empty() {
        table.remove(VFS);
        return Ok(());
    }
    let list = vfs_of(table, name)?;
    let named = |words: &toml::Table| words.get("index").and_then(Value::as_integer);
    list.retain(|table| vfs.iter().any(|words| named(words) == index(table)));
    for words in vfs {
        let is = |table: &Table| index(table) == named(words);
        if !list.iter().any(is) {
            let mut table = Table::new();
            table.decor_mut().set_prefix("\n");
            list.push(table);
        }
        let new = list.len() - 1;
        let at = list.iter().position(is).unwrap_or(new);
        if let Some(table) = list.get_mut(at) {
            table.retain(|key, _| words.contains_key(key));
            fill(table, words);
        }
    }
    Ok(())
}

/// The tables of a chip's VFs.
fn vfs_of<'a>(nic: &'a mut Table, name: &str) -> Result<&'a mut ArrayOfTables, String> {
    let new = || Item::ArrayOfTables(ArrayOfTables::new());
    let vfs = nic.entry(VFS).or_insert_with(new);
    let vfs = vfs.as_array_of_tables_mut();
    vfs.ok_or_else(|| format!("vf of [[nic]] {name:?} is no [[nic.vf]]"))
}

fn index(vf: &Table) -> Option<i64> {
    vf.get("index").and_then(Item::as_integer)
}

/// Takes a table out, and leaves comments that stand apart from it.
fn take(doc: &mut DocumentMut, kind: &str, name: &str) -> Result<(), String> {
    if !doc.contains_key(kind) {
        return Ok(());
    }
    let tables = all(doc, kind)?;
    let Some(at) = tables.iter().position(|table| is_named(table, name)) else {
        return Ok(());
    };
    let apart = tables.get(at).map_or_else(String::new, |table| {
        let before = table.decor().prefix().and_then(|prefix| prefix.as_str());
        let before = before.unwrap_or("");
        // What a blank line parts from the table is not the table's.
        let end = before.rfind("\n\n").map_or(0, |at| at + 1);
        before[..end].to_owned()
    });
    let position = tables.get(at).and_then(Table::position);
    tables.remove(at);
    if tables.is_empty() {
        doc.remove(kind);
    }
    if !apart.trim().is_empty() {
        give(doc, position, &apart);
    }
    Ok(())
}

/// Puts comments before the table that comes next, or at the end.
fn give(doc: &mut DocumentMut, after: Option<isize>, comments: &str) {
    let mut next: Option<&mut Table> = None;
    for (_, item) in doc.iter_mut() {
        let tables = match item {
            Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
            Item::Table(table) => vec![table],
            _ => Vec::new(),
        };
        for table in tables {
            let nearer = next
                .as_ref()
                .is_none_or(|next| table.position() < next.position());
            if table.position() > after && nearer {
                next = Some(table);
            }
        }
    }
    if let Some(next) = next {
        let own = next.decor().prefix().and_then(|prefix| prefix.as_str());
        let both = format!("{comments}{}", own.unwrap_or(""));
        next.decor_mut().set_prefix(both);
        return;
    }
    let own = doc.trailing().as_str().unwrap_or("").to_owned();
    doc.set_trailing(format!("{comments}{own}"));
}

fn ports(
    doc: &mut DocumentMut,
    switch: &str,
    ports: &[&PortSpec],
    there: bool,
) -> Result<(), String> {
    let tables = all(doc, "switch")?;
    let Some(table) = tables.iter_mut().find(|table| is_named(table, switch)) else {
        return Err(format!(
            "the file has no [[switch]] {switch:?}: add it with persist first"
        ));
    };
    let list = table
        .entry("ports")
        .or_insert_with(|| Item::Value(toml_edit::Value::Array(toml_edit::Array::new())));
    let Some(list) = list.as_array_mut() else {
        return Err(format!("ports of [[switch]] {switch:?} are no list"));
    };
    let is = |value: &toml_edit::Value| {
        let word = value
            .as_str()
            .and_then(|word| word.parse::<PortSpec>().ok());
        word.is_some_and(|word| ports.contains(&&word))
    };
    let at = list.iter().position(is);
    match (at, there) {
        (None, true) => list.extend(ports.iter().map(ToString::to_string)),
        (Some(at), false) => drop(list.remove(at)),
        _ => {}
    }
    Ok(())
}

/// A VF's table, made if there is none.
fn vf_at<'a>(
    doc: &'a mut DocumentMut,
    chip: &str,
    index: u32,
) -> Result<Option<&'a mut Table>, String> {
    let tables = all(doc, "nic")?;
    let Some(nic) = tables.iter_mut().find(|table| is_named(table, chip)) else {
        return Err(format!("the file has no [[nic]] {chip:?}"));
    };
    let vfs = vfs_of(nic, chip)?;
    let is = |table: &Table| self::index(table) == Some(index.into());
    if !vfs.iter().any(is) {
        let mut table = Table::new();
        table.insert("index", toml_edit::value(i64::from(index)));
        vfs.push(table);
    }
    Ok(vfs.iter_mut().find(|table| is(table)))
}

fn put_vf(
    doc: &mut DocumentMut,
    chip: &str,
    index: u32,
    policy: &toml::Table,
) -> Result<(), String> {
    if let Some(vf) = vf_at(doc, chip, index)? {
        vf.retain(|key, _| policy.contains_key(key) || !POLICY.contains(&key));
        fill(vf, policy);
    }
    Ok(())
}

fn vf(doc: &mut DocumentMut, chip: &str, index: u32, change: &VfChange) -> Result<(), String> {
    let Some(vf) = vf_at(doc, chip, index)? else {
        return Ok(());
    };
    let mut words = table(change);
    if let Some(storm) = &change.storm {
        words.remove("storm");
        let limits = Storm(eswitch::Storm {
            broadcast: storm.broadcast,
            multicast: storm.multicast,
            unknown: None,
        });
        if limits == Storm::default() {
            vf.remove("storm");
        } else {
            words.insert("storm".into(), limits.to_string().into());
        }
    }
    if change.interrupts == Some(0) {
        words.remove("interrupts");
        vf.remove("interrupts");
    }
    fill(vf, &words);
    Ok(())
}

impl HostConfig {
    /// The text of the daemon's file after a change, if that is a file that can be served.
    ///
    /// # Errors
    /// One line.
    pub(crate) fn file_with(&self, edit: Edit) -> Result<(PathBuf, String), String> {
        let Some(file) = &self.file else {
            return Err(
                "the daemon was started without a configuration file, so nothing can be written there".into(),
            );
        };
        if !self.persist {
            return Err(
                "calls may not write into the configuration file: say control-persist = true at its head, and start \
                 the daemon again"
                    .into(),
            );
        }
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let text = edited(&text, edit)?;
        HostConfig::parse(file, &text)
            .map_err(|error| format!("the file would be wrong then: {error}"))?;
        Ok((file.clone(), text))
    }
}
