"use strict";
// Read the columns of numbers in the page's text, which forebay/report/moving.py wrote.
globalThis.forebayNumbers = (() => {
  const inflated = async (text) => {
    const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };

  // The bytes are grouped by significance: all first bytes, then all second bytes, and so on.
  const words = (bytes, at, length, size) => {
    const out = new Uint8Array(length * size);
    for (let plane = 0; plane < size; plane++) {
      const from = at + plane * length;
      for (let i = 0; i < length; i++) out[i * size + plane] = bytes[from + i];
    }
    return out.buffer;
  };

  const column = (bytes, [kind, length, at, step]) => {
    if (kind === "r") return Array.from({ length }, (_, i) => +(at + i * step).toPrecision(12));
    if (kind === "d") return Array.from(new Float64Array(words(bytes, at, length, 8)));
    if (kind === "f") {
      const floats = new Float32Array(words(bytes, at, length, 4));
      return Array.from(floats, (one) => (Number.isNaN(one) ? null : one));
    }
    let sum = 0;
    const zigzag = new Uint32Array(words(bytes, at, length, 4));
    return Array.from(zigzag, (one) => (sum += (one >>> 1) ^ -(one & 1)));
  };

  // Return a function that returns a column by its number, and unpacks each column once.
  return async (text, columns) => {
    const bytes = await inflated(text);
    const known = [];
    return (index) => (known[index] ??= column(bytes, columns[index]));
  };
})();
