//! Debian's kernels: which of them a guest runs, and where each comes from.

use crate::apt::{self, Source};
use crate::cache::{Cache, content_key};
use crate::error::{CannotRun, Result};
use crate::packages::{self, KERNEL_PATHS};
use crate::root::Root;
use crate::stock::{self, Stock};

/// Which of Debian's kernels a guest runs. What is not there is downloaded when it is first asked for, and then stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kernel {
    /// 6.1, of Debian 12 (80 MB to download).
    Oldest,
    /// The one of the Debian that guests are made of, 6.12.
    #[default]
    Stable,
    /// The newest that Debian's archive has, from unstable or else from backports (135 MB to download).
    Newest,
    /// [`Kernel::Stable`] with all its modules, KVM among them, for a guest that runs guests (100 MB to download).
    Host,
}

/// Where the packages of a kernel may come from, best first.
pub(crate) fn sources(kernel: Kernel) -> &'static [Source] {
    match kernel {
        Kernel::Oldest => &[apt::OLD],
        Kernel::Stable | Kernel::Host => &[apt::GUEST],
        Kernel::Newest => &apt::NEW,
    }
}

/// The packages of a kernel, downloaded and unpacked the first time.
pub(crate) fn prepare(kernel: Kernel, cache: &Cache, root: &Root) -> Result<Stock> {
    const PACKAGES: [&str; 1] = ["linux-image-amd64"];
    let name = match kernel {
        Kernel::Stable => return root.kernel(),
        Kernel::Oldest => "kernel_oldest",
        Kernel::Newest => "kernel_newest",
        Kernel::Host => "kernel_host",
    };
    let sources = sources(kernel);
    let whole = kernel == Kernel::Host;
    let mut text = if whole {
        Vec::new()
    } else {
        KERNEL_PATHS.to_vec()
    };
    text.extend(sources.iter().flat_map(|s| s.suites));
    let key = content_key(text.iter().map(|t| t.as_bytes()));
    let dir = cache.once(&format!("{name}-{}", &key[..8]), |scratch| {
        let apt_dir = cache.dir().join(format!("apt-{name}"));
        let mut last = CannotRun::new("no suite to take a kernel from").into();
        for source in sources {
            let in_full = |name: &str| whole || !name.starts_with("linux-");
            match packages::unpack_beside(scratch, &apt_dir, *source, &PACKAGES, &[], in_full) {
                Ok(()) => return Ok(()),
                Err(why) => last = why,
            }
        }
        Err(last)
    })?;
    stock::find(&dir)
}
