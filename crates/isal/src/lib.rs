//! Intel's ISA-L as a peer: other people's parity to compare ours with, in tests and in
//! `strake bench codec`.
//!
//! Loaded at run time where it is installed; nothing here is on any path that serves
//! data, and nothing links to it. `STRAKE_LIBISAL` names another file than the installed
//! `libisal.so.2`: a newer one that was unpacked beside, say.
//!
//! What keeps it sound: [`Isal::load`] hands out a value only when all functions that are
//! called were found, with the signatures of ISA-L 2's headers (`raid.h`,
//! `erasure_code.h`), which its soname `libisal.so.2` stands for; the library stays loaded
//! for the life of the process; every call checks counts, lengths and alignments first.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uchar, c_void};
use std::path::{Path, PathBuf};

/// The environment variable that names another library than the installed one.
const VARIABLE: &str = "STRAKE_LIBISAL";
const INSTALLED: &str = "libisal.so.2";

/// Bytes of prepared tables for each coefficient.
const TABLE_BYTES: usize = 32;
/// What `xor_gen` and `pq_gen` ask of addresses.
const ALIGNMENT: usize = 32;
/// Most strips in a call.
const STRIPS_MAX: usize = 255;

type Gen = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;
type Cauchy = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type Init = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type Encode =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);

/// The library, loaded.
#[derive(Debug, Clone)]
pub struct Isal {
    file: PathBuf,
    xor_gen: Gen,
    pq_gen: Gen,
    gf_gen_cauchy1_matrix: Cauchy,
    ec_init_tables: Init,
    ec_encode_data: Encode,
}

/// A matrix prepared by ISA-L: rows × columns coefficients of GF(2⁸), polynomial 0x11d.
#[derive(Debug, Clone)]
pub struct Matrix {
    library: Isal,
    rows: usize,
    columns: usize,
    tables: Vec<u8>,
}

impl Isal {
    /// Loads the library, or says why it cannot be had, in one line.
    pub fn load() -> Result<Isal, String> {
        let named = std::env::var(VARIABLE).ok().filter(|name| !name.is_empty());
        let name = named.unwrap_or_else(|| INSTALLED.to_owned());
        let text = CString::new(name.as_str()).map_err(|_| format!("{name:?}: not a path"))?;
        // SAFETY: the text is a C string that lives across the call. Loading runs the
        // library's constructors; ISA-L has none, and whoever sets the variable vouches
        // for another file.
        let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("ISA-L: {}", last_error()));
        }
        let find = |symbol: &CStr| -> Result<*mut c_void, String> {
            // SAFETY: `library` is a loaded library, and never unloaded.
            let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
            match found.is_null() {
                true => Err(format!("ISA-L: {}", last_error())),
                false => Ok(found),
            }
        };
        let ec_encode_data = find(c"ec_encode_data")?;
        let (xor_gen, pq_gen) = (find(c"xor_gen")?, find(c"pq_gen")?);
        let (cauchy, init) = (find(c"gf_gen_cauchy1_matrix")?, find(c"ec_init_tables")?);
        // SAFETY: functions of these names have these signatures in every ISA-L 2 (see
        // the head of this file); a function's address is what a function pointer holds.
        unsafe {
            Ok(Isal {
                file: file_of(ec_encode_data).unwrap_or_else(|| PathBuf::from(&name)),
                xor_gen: std::mem::transmute::<*mut c_void, Gen>(xor_gen),
                pq_gen: std::mem::transmute::<*mut c_void, Gen>(pq_gen),
                gf_gen_cauchy1_matrix: std::mem::transmute::<*mut c_void, Cauchy>(cauchy),
                ec_init_tables: std::mem::transmute::<*mut c_void, Init>(init),
                ec_encode_data: std::mem::transmute::<*mut c_void, Encode>(ec_encode_data),
            })
        }
    }

    /// The file that was loaded, links followed: its name ends with the version
    /// (`libisal.so.2.0.31` is ISA-L 2.31).
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// parity = XOR of at least two data strips; all of one length and 32-byte aligned.
    pub fn xor_gen(&self, data: &[&[u8]], parity: &mut [u8]) {
        let len = parity.len();
        self.generate(self.xor_gen, data, &mut [parity], len);
    }

    /// P and Q of at least two data strips; all of one length, a multiple of 32, and
    /// 32-byte aligned.
    pub fn pq_gen(&self, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        let len = p.len();
        assert!(len.is_multiple_of(ALIGNMENT), "length");
        self.generate(self.pq_gen, data, &mut [p, q], len);
    }

    fn generate(&self, call: Gen, data: &[&[u8]], parities: &mut [&mut [u8]], len: usize) {
        let strips = data.len() + parities.len();
        assert!(data.len() >= 2 && strips <= STRIPS_MAX, "strips");
        let mut pointers = [std::ptr::null_mut::<c_void>(); STRIPS_MAX];
        let addresses = data.iter().map(|strip| (strip.as_ptr(), strip.len()));
        let written = parities
            .iter_mut()
            .map(|p| (p.as_mut_ptr().cast_const(), p.len()));
        for (place, (address, its)) in pointers.iter_mut().zip(addresses.chain(written)) {
            assert!(its == len && address.addr().is_multiple_of(ALIGNMENT));
            *place = address.cast_mut().cast();
        }
        // SAFETY: so many pointers to so many bytes each, aligned as asked; of those only
        // the last, which came from exclusive borrows, are written.
        let failed = unsafe { call(strips as c_int, len as c_int, pointers.as_mut_ptr()) };
        assert_eq!(failed, 0, "ISA-L refused the call");
    }

    /// The last `parity` rows of ISA-L's Cauchy matrix for `data` columns, row by row.
    pub fn cauchy1(&self, data: usize, parity: usize) -> Vec<u8> {
        assert!(data >= 1 && data + parity <= STRIPS_MAX);
        let mut matrix = vec![0; (data + parity) * data];
        // SAFETY: it writes (k + m) rows of k bytes.
        unsafe {
            (self.gf_gen_cauchy1_matrix)(
                matrix.as_mut_ptr(),
                (data + parity) as c_int,
                data as c_int,
            );
        }
        matrix.split_off(data * data)
    }

    /// Prepares a matrix, given row by row.
    pub fn matrix(&self, rows: usize, columns: usize, coefficients: &[u8]) -> Matrix {
        assert!(rows >= 1 && columns >= 1 && rows + columns <= STRIPS_MAX);
        assert_eq!(coefficients.len(), rows * columns);
        let mut coefficients = coefficients.to_vec();
        let mut tables = vec![0; rows * columns * TABLE_BYTES];
        // SAFETY: it reads rows × columns bytes and writes 32 times as many.
        unsafe {
            (self.ec_init_tables)(
                columns as c_int,
                rows as c_int,
                coefficients.as_mut_ptr(),
                tables.as_mut_ptr(),
            );
        }
        Matrix {
            library: self.clone(),
            rows,
            columns,
            tables,
        }
    }
}

impl Matrix {
    /// outputs = matrix × inputs (`ec_encode_data`); all of one length.
    pub fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!((inputs.len(), outputs.len()), (self.columns, self.rows));
        let len = inputs[0].len();
        let mut sources = [std::ptr::null_mut::<c_uchar>(); STRIPS_MAX];
        let mut targets = sources;
        for (place, input) in sources.iter_mut().zip(inputs) {
            assert_eq!(input.len(), len);
            *place = input.as_ptr().cast_mut();
        }
        for (place, output) in targets.iter_mut().zip(outputs) {
            assert_eq!(output.len(), len);
            *place = output.as_mut_ptr();
        }
        // SAFETY: so many pointers to so many bytes each, and tables made for so many;
        // only the targets, which came from exclusive borrows, are written.
        unsafe {
            (self.library.ec_encode_data)(
                len as c_int,
                self.columns as c_int,
                self.rows as c_int,
                self.tables.as_ptr().cast_mut(),
                sources.as_mut_ptr(),
                targets.as_mut_ptr(),
            );
        }
    }
}

/// What dlopen or dlsym complained about last.
fn last_error() -> String {
    // SAFETY: it returns null or a C string that is valid until the next such call on
    // this thread, which comes after the copy.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => "no reason given".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    }
}

/// The file that a loaded function came from.
fn file_of(function: *mut c_void) -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a place for a `Dl_info`, for which zeroes are a value as well.
    let (found, info) = unsafe {
        let found = libc::dladdr(function, info.as_mut_ptr());
        (found, info.assume_init())
    };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    let name: *const c_char = info.dli_fname;
    // SAFETY: a C string of the loaded library, which is never unloaded.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    Some(std::fs::canonicalize(name).unwrap_or_else(|_| PathBuf::from(name)))
}
