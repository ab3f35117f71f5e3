//! Which group may connect to the sockets that the daemon makes, and whether others may.

use super::access;

/// Whom a socket is opened to; where it says nothing, the file has what the process's umask leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// The group that it is given to, by its number.
    pub group: Option<u32>,
    /// The mode of its file. To connect takes the right to write.
    pub mode: Option<u32>,
}

impl SocketAccess {
    /// Its words, as a file has them: the group by its number.
    pub(super) fn words(self) -> [Option<String>; 2] {
        let mode = self.mode.map(|mode| format!("{mode:04o}"));
        [self.group.map(|gid| gid.to_string()), mode]
    }
}

/// A group of this host, or its number.
///
/// # Errors
/// There is none of that name: one line.
pub fn parse_group(word: &str) -> Result<u32, String> {
    access::group(word).ok_or_else(|| format!("there is no group \"{word}\" on this host"))
}

/// The mode of a file, in octal.
///
/// # Errors
/// It is none: one line.
pub fn parse_mode(word: &str) -> Result<u32, String> {
    let digits = (3..=4).contains(&word.len()) && word.bytes().all(|c| (b'0'..=b'7').contains(&c));
    u32::from_str_radix(word, 8)
        .ok()
        .filter(|mode| digits && *mode <= 0o777)
        .ok_or_else(|| format!("\"{word}\" is no mode of a file; write one such as \"0660\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_there_is_not_is_named() {
        assert_eq!(parse_group("4242"), Ok(4242));
        let none = parse_group("no-such-group").expect_err("none");
        assert!(none.contains("no-such-group"), "{none}");
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0660"), Ok(0o660));
        assert_eq!(parse_mode("600"), Ok(0o600));
        for word in ["", "60", "06600", "0888", "4755", "rw", "+660"] {
            let why = parse_mode(word).expect_err(word);
            assert!(why.contains("0660"), "{why}");
        }
    }
}
