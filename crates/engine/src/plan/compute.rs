//! Carries out the arithmetic of a plan: bytes to bytes, in the caller's memory.

use arrayvec::ArrayVec;
use strake_codec::Code;

use super::{Fragment, Memory, Plan, SLOTS_MAX, Span, Way, mask, strips_of};
use crate::format::bytes::crc32c;
use crate::layout::{BAND_BYTES_MAX, STRIPS_MAX};

/// Source of zeroes for fragments that are written as zeroes.
static ZEROES: [u8; BAND_BYTES_MAX as usize] = [0; BAND_BYTES_MAX as usize];

/// Computes every span of `plan`.
///
/// `slots[n]` is the memory of slot n, `plan.slot_bytes()` long where the plan asks for it.
/// `request` gives the bytes of a fragment's memory: from where, how many. `checksums` gets those
/// that the log wants, span by span: each unit of the new content of each written strip, then of
/// the old content where it was read. Returns, for spans that check, the strips whose content
/// differs from what the others say (bit: strip).
pub fn run<'a, S>(
    plan: &Plan,
    fragments: &[Fragment],
    code: &Code,
    slots: &mut [Option<S>],
    request: &dyn Fn(Memory, usize) -> &'a [u8],
    checksums: &mut Vec<u32>,
) -> u64
where
    S: AsRef<[u8]> + AsMut<[u8]>,
{
    let mut differing = 0;
    for span in &plan.spans {
        let mut step = Step {
            plan,
            fragments,
            code,
            slots,
            request,
            span,
        };
        match span.way {
            Way::Direct => {}
            Way::FullStripe | Way::ReconstructWrite => step.encode(),
            Way::ReadModifyWrite => step.modify(),
            Way::Decode => step.decode(0),
            Way::Check => differing |= step.check(),
        }
        if span.has_partial_parity() {
            step.partial_parity();
        }
        if span.unit_bytes > 0 {
            step.checksums(checksums);
        }
    }
    differing
}

/// Memory taken out of its slots. Lists of this size are filled where they lie: moving one costs
/// as much as the arithmetic of a block.
type Taken<S> = ArrayVec<(usize, S), SLOTS_MAX>;

/// One slice a strip.
type Sources<'s> = ArrayVec<&'s [u8], STRIPS_MAX>;
type Sums<'s> = ArrayVec<&'s mut [u8], STRIPS_MAX>;

struct Step<'p, 'a, S> {
    plan: &'p Plan,
    fragments: &'p [Fragment],
    code: &'p Code,
    slots: &'p mut [Option<S>],
    request: &'p dyn Fn(Memory, usize) -> &'a [u8],
    span: &'p Span,
}

impl<S: AsRef<[u8]> + AsMut<[u8]>> Step<'_, '_, S> {
    /// Byte range of the span within a slot.
    fn rows(&self) -> std::ops::Range<usize> {
        (self.span.start - self.plan.start) as usize..(self.span.end - self.plan.start) as usize
    }

    /// Parities that have a slot: the others are not wanted.
    fn parities(&self) -> u64 {
        let all = mask(self.code.data() + self.code.parity()) & !mask(self.code.data());
        all & self.plan.slots as u64
    }

    /// Partial parity, in slots of its own: parity without the strips that are written.
    fn partial_parity(&mut self) {
        let parities = self.parities();
        let strips = self.code.data() + self.code.parity();
        let mut outputs = Taken::new();
        self.take(
            strips_of(parities).map(|parity| strips + parity),
            &mut outputs,
        );
        {
            let mut whole = Sources::new();
            whole.extend(strips_of(parities).map(|parity| self.stored(parity)));
            let mut contents = Sources::new();
            contents.extend(strips_of(self.span.written).map(|strip| self.content(strip)));
            let mut out = Sums::new();
            self.sums(&mut outputs, &mut out);
            self.code.partial_parity_without(
                parities >> self.code.data(),
                self.span.written,
                &contents,
                &whole,
                &mut out,
            );
        }
        self.give(&mut outputs);
    }

    fn checksums(&self, out: &mut Vec<u32>) {
        let unit = self.span.unit_bytes as usize;
        for strip in strips_of(self.span.written) {
            out.extend(self.content(strip).chunks_exact(unit).map(crc32c));
        }
        for strip in strips_of(self.span.old()) {
            out.extend(self.stored(strip).chunks_exact(unit).map(crc32c));
        }
    }

    /// The rows of the span in all that was taken.
    fn sums<'s>(&self, taken: &'s mut Taken<S>, into: &mut Sums<'s>) {
        let rows = self.rows();
        for (_, memory) in taken {
            into.push(&mut memory.as_mut()[rows.clone()]);
        }
    }

    fn take(&mut self, slots: impl Iterator<Item = usize>, into: &mut Taken<S>) {
        for slot in slots {
            let memory = self.slots[slot].take();
            into.push((slot, memory.expect("the plan's slots exist")));
        }
    }

    fn give(&mut self, taken: &mut Taken<S>) {
        for (slot, memory) in taken.drain(..) {
            self.slots[slot] = Some(memory);
        }
    }

    /// What a data strip holds in the span's rows after the write.
    fn content(&self, strip: usize) -> &[u8] {
        if self.span.written & (1 << strip) == 0 {
            return self.stored(strip);
        }
        self.fragment(strip)
            .expect("a written strip has a fragment")
    }

    fn fragment(&self, strip: usize) -> Option<&[u8]> {
        let (start, end) = (self.span.start, self.span.end);
        let fragment = self
            .fragments
            .iter()
            .find(|f| f.covers(strip, start, end))?;
        let length = (end - start) as usize;
        Some(match fragment.memory {
            Memory::Zeroes => &ZEROES[..length],
            Memory::Request(id, at) => {
                (self.request)(Memory::Request(id, at + (start - fragment.start)), length)
            }
        })
    }

    fn stored(&self, strip: usize) -> &[u8] {
        let slot = self.slots[strip].as_ref().expect("the plan's slots exist");
        &slot.as_ref()[self.rows()]
    }

    fn encode(&mut self) {
        if self.span.decoder.is_some() {
            self.decode(0);
        }
        let parities = self.parities();
        let mut outputs = Taken::new();
        self.take(strips_of(parities), &mut outputs);
        {
            let mut inputs = Sources::new();
            inputs.extend((0..self.code.data()).map(|s| self.content(s)));
            let mut out = Sums::new();
            self.sums(&mut outputs, &mut out);
            self.code
                .encoder()
                .apply_rows(parities >> self.code.data(), &inputs, &mut out);
        }
        self.give(&mut outputs);
    }

    fn modify(&mut self) {
        let parities = self.parities();
        let mut outputs = Taken::new();
        self.take(strips_of(parities), &mut outputs);
        {
            let written = self.span.written;
            let mut old = Sources::new();
            old.extend(strips_of(written).map(|s| self.stored(s)));
            let mut new = Sources::new();
            new.extend(strips_of(written).map(|s| self.content(s)));
            let mut out = Sums::new();
            self.sums(&mut outputs, &mut out);
            self.code
                .update(parities >> self.code.data(), written, &old, &new, &mut out);
        }
        self.give(&mut outputs);
    }

    /// Decodes the wanted strips into their slots, `shift` slots further on.
    fn decode(&mut self, shift: usize) {
        let decoder = self
            .span
            .decoder
            .clone()
            .expect("a span that decodes has a decoder");
        let mut outputs = Taken::new();
        self.take(
            decoder.wanted().iter().map(|&s| usize::from(s) + shift),
            &mut outputs,
        );
        {
            let mut inputs = Sources::new();
            inputs.extend(decoder.sources().iter().map(|&s| {
                let strip = usize::from(s);
                // A degraded read finds some of its sources in the request's own memory.
                if self.slots[strip].is_some() && self.plan.slots & (1 << strip) != 0 {
                    self.stored(strip)
                } else {
                    self.fragment(strip)
                        .expect("a source is in its slot or in the request")
                }
            }));
            let mut out = Sums::new();
            self.sums(&mut outputs, &mut out);
            decoder.transform().apply(&inputs, &mut out);
        }
        self.give(&mut outputs);
    }

    fn check(&mut self) -> u64 {
        let strips = self.code.data() + self.code.parity();
        self.decode(strips);
        let decoder = self.span.decoder.as_ref().expect("a check has a decoder");
        let rows = self.rows();
        let mut differing = 0;
        for &strip in decoder.wanted() {
            let strip = usize::from(strip);
            let computed = self.slots[strips + strip]
                .as_ref()
                .expect("the plan's slots exist");
            if self.stored(strip) != &computed.as_ref()[rows.clone()] {
                differing |= 1 << strip;
            }
        }
        differing
    }
}
