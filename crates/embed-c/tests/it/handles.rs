//! What the C functions do with NULL, with calls from callbacks, and with memory.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use hypernic_nic::*;

#[derive(Default)]
struct World {
    nic: *mut hn_nic,
    nested: Vec<c_int>,
}

unsafe extern "C" fn send(_opaque: *mut c_void, _frame: *const u8, _len: usize) -> bool {
    true
}

unsafe extern "C" fn interrupt(opaque: *mut c_void, _level: bool) {
    // SAFETY: `opaque` is the test's World, which outlives the NIC.
    let world = unsafe { &mut *opaque.cast::<World>() };
    // SAFETY: the NIC lives, or is NULL while it is being made.
    let status = unsafe { hn_nic_run(world.nic, 1) };
    world.nested.push(status);
}

unsafe extern "C" fn set_timer(_opaque: *mut c_void, _armed: bool, _deadline: u64) {}

unsafe extern "C" fn now(_opaque: *mut c_void) -> u64 {
    0
}

fn host(world: *mut World) -> hn_host {
    hn_host {
        opaque: world.cast(),
        send: Some(send),
        dma_read: None,
        dma_write: None,
        interrupt: Some(interrupt),
        message: None,
        set_timer: Some(set_timer),
        now: Some(now),
        room: None,
        pme: None,
    }
}

fn new(model: &CStr, host: &hn_host) -> (c_int, *mut hn_nic) {
    let mut nic = ptr::null_mut();
    let mac = [2, 0, 0, 0, 0, 1];
    // SAFETY: all four pointers are good.
    let status = unsafe { hn_nic_new(model.as_ptr(), mac.as_ptr(), host, &mut nic) };
    (status, nic)
}

fn write(nic: *mut hn_nic, offset: u64, value: u32) {
    let bytes = value.to_le_bytes();
    // SAFETY: `nic` lives, `bytes` are four.
    assert_eq!(
        unsafe { hn_nic_write(nic, 0, offset, bytes.as_ptr(), 4) },
        HN_OK
    );
}

#[test]
fn null_is_refused_everywhere() {
    let mut byte = 0u8;
    let byte: *mut u8 = &mut byte;
    let none: *mut hn_nic = ptr::null_mut();
    // SAFETY: NULL is what is being tested; `byte` is one byte.
    unsafe {
        assert_eq!(
            hn_nic_describe(none, &mut hn_description::default()),
            HN_INVALID
        );
        assert_eq!(hn_nic_config_read(none, 0, byte, 1), HN_INVALID);
        assert_eq!(hn_nic_config_write(none, 0, byte, 1), HN_INVALID);
        assert_eq!(hn_nic_read(none, 0, 0, byte, 1), HN_INVALID);
        assert_eq!(hn_nic_write(none, 0, 0, byte, 1), HN_INVALID);
        assert_eq!(hn_nic_run(none, 1), HN_INVALID);
        assert_eq!(hn_nic_receive(none, byte, 1), HN_INVALID);
        assert_eq!(hn_nic_tick(none), HN_INVALID);
        assert_eq!(hn_nic_set_link(none, true), HN_INVALID);
        assert_eq!(hn_nic_reset(none), HN_INVALID);
        assert_eq!(hn_nic_map(none, 0, byte.cast(), 1, true), HN_INVALID);
        assert_eq!(hn_nic_unmap(none, 0, 1), HN_INVALID);
        hn_nic_free(none);
    }
    let mut world = World::default();
    let good = host(&mut world);
    assert_eq!(new(c"e1001", &good).0, HN_REFUSED);
    assert_eq!(new(c"e1000", &hn_host { now: None, ..good }).0, HN_INVALID);
    let (status, nic) = new(c"e1000", &good);
    assert_eq!(status, HN_OK);
    // SAFETY: `nic` lives.
    unsafe {
        assert_eq!(hn_nic_read(nic, 0, 0, ptr::null_mut(), 4), HN_INVALID);
        assert_eq!(hn_nic_receive(nic, ptr::null(), 60), HN_INVALID);
        assert_eq!(hn_nic_read(nic, 0, 0, ptr::null_mut(), 0), HN_OK);
        assert_eq!(hn_nic_describe(nic, ptr::null_mut()), HN_INVALID);
        assert_eq!(hn_nic_counters(nic, None, ptr::null_mut()), HN_INVALID);
        hn_nic_free(nic);
    }
}

#[test]
fn a_call_from_a_callback_is_told_that_the_nic_is_busy() {
    let mut world = Box::new(World::default());
    let world: *mut World = &mut *world;
    let (_, nic) = new(c"e1000", &host(world));
    // SAFETY: the world is ours; the NIC uses it only during calls.
    unsafe {
        (*world).nic = nic;
        (*world).nested.clear();
    }
    write(nic, 0x00d0, 0x04); // IMS
    write(nic, 0x00c8, 0x04); // ICS: the interrupt calls back
    // SAFETY: as above.
    unsafe {
        assert_eq!((*world).nested, [HN_BUSY]);
        assert_eq!(hn_nic_run(nic, 1), HN_OK);
        hn_nic_free(nic);
    }
}

unsafe extern "C" fn find(opaque: *mut c_void, name: *const c_char, value: u64) {
    // SAFETY: `opaque` is the test's pair, `name` a C string.
    let (wanted, found) = unsafe { &mut *opaque.cast::<(&CStr, Option<u64>)>() };
    // SAFETY: as above.
    if unsafe { CStr::from_ptr(name) } == *wanted {
        *found = Some(value);
    }
}

#[test]
fn mapped_memory_is_used_until_it_is_unmapped() {
    let mut world = World::default();
    let (_, nic) = new(c"e1000", &host(&mut world));
    let mut ram = vec![0u64; 0x800];
    let memory: *mut c_void = ram.as_mut_ptr().cast();
    let len = 0x4000;
    // One descriptor at 0 that asks for its buffer at 1000h to be sent and reported.
    ram[0] = 0x1000;
    ram[1] = 0x0b00_0000 | 60;
    let go = |nic| {
        for (register, value) in [
            (0x0000, 0x40),
            (0x3808, 128),
            (0x3810, 0),
            (0x0400, 0x0a),
            (0x3818, 1),
        ] {
            write(nic, register, value);
        }
        // SAFETY: `nic` lives.
        unsafe { hn_nic_run(nic, 256) }
    };
    // SAFETY: `nic` and `ram` live until the end of the test.
    unsafe {
        assert_eq!(hn_nic_config_write(nic, 4, [6, 0].as_ptr(), 2), HN_OK);
        assert_eq!(hn_nic_map(nic, 0, memory, len, true), HN_OK);
        assert_eq!(hn_nic_map(nic, 0x1000, memory, len, true), HN_REFUSED);
        assert_eq!(go(nic), HN_OK);
        assert_eq!(memory.cast::<u64>().add(1).read_volatile() >> 32 & 1, 1);
        assert_eq!(hn_nic_unmap(nic, 0, len - 1), HN_REFUSED);
        assert_eq!(hn_nic_unmap(nic, 0, len), HN_OK);
        assert_eq!(go(nic), HN_OK);
        let mut faults = (c"tx_dma_fault", None::<u64>);
        hn_nic_counters(nic, Some(find), ptr::from_mut(&mut faults).cast());
        assert!(faults.1 > Some(0), "{faults:?}");
        hn_nic_free(nic);
    }
}

#[test]
fn a_saved_nic_goes_on_elsewhere() {
    let mut world = World::default();
    let table = host(&mut world);
    let ((_, here), (_, there)) = (new(c"e1000", &table), new(c"e1000", &table));
    write(here, 0x3808, 0x780); // TDLEN
    let mut len = 0;
    // SAFETY: both NICs live, and buffers have the length they are said to have.
    unsafe {
        assert_eq!(hn_nic_save(here, ptr::null_mut(), &mut len), HN_BLOCKED);
        let mut state = vec![0; len];
        assert_eq!(hn_nic_save(here, state.as_mut_ptr(), &mut len), HN_OK);
        assert_eq!(len, state.len());
        assert_eq!(hn_nic_load(there, state.as_ptr(), len - 1), HN_REFUSED);
        assert_eq!(hn_nic_load(there, ptr::null(), len), HN_INVALID);
        assert_eq!(
            hn_nic_save(here, ptr::null_mut(), ptr::null_mut()),
            HN_INVALID
        );
        assert_eq!(hn_nic_load(there, state.as_ptr(), len), HN_OK);
        let (mac, mut third) = ([2u8, 0, 0, 0, 0, 1], ptr::null_mut());
        let model = c"e1000".as_ptr();
        let mut of =
            |state: *const u8| hn_nic_new_for(state, len, model, mac.as_ptr(), &table, &mut third);
        assert_eq!(of(ptr::null()), HN_INVALID);
        assert_eq!(of(state.as_ptr()), HN_OK);
        assert_eq!(hn_nic_load(third, state.as_ptr(), len), HN_OK);
        hn_nic_free(third);
        let mut tdlen = [0; 4];
        hn_nic_read(there, 0, 0x3808, tdlen.as_mut_ptr(), 4);
        assert_eq!(tdlen, [0x80, 7, 0, 0]);
        hn_nic_free(here);
        hn_nic_free(there);
    }
}
