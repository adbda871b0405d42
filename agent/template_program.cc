#include "agent/template_program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <optional>

#include "common/check.h"

namespace spate::agent {
namespace {

constexpr std::size_t kMaxVarint = 10;
constexpr std::size_t kMaxDecimal = 20;
// Protobuf's own parser stops at 100 levels, and so does every target.
constexpr std::size_t kMaxDepth = 128;

// Writes toward the front; the caller has made sure of the room.
class BackWriter {
 public:
  explicit BackWriter(char* end) : p_(end) {}
  char* position() const { return p_; }

  void bytes(const char* data, std::size_t size) {
    p_ -= size;
    std::memcpy(p_, data, size);
  }
  void varint(std::uint64_t value) {
    std::array<char, kMaxVarint> buffer;
    std::size_t size = 0;
    for (; value >= 0x80; value >>= 7) buffer[size++] = static_cast<char>(value | 0x80);
    buffer[size++] = static_cast<char>(value);
    bytes(buffer.data(), size);
  }
  // Room for `size` bytes, to be filled by the caller.
  char* room(std::size_t size) { return p_ -= size; }
  template <class T>
  void little_endian(T value) {
    static_assert(std::endian::native == std::endian::little);
    bytes(reinterpret_cast<const char*>(&value), sizeof value);
  }

 private:
  char* p_;
};

std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  for (; value >= 0x80; value >>= 7) ++size;
  return size;
}

// The width of a hole that has only one.
std::optional<std::size_t> fixed_width(const Hole& hole, Encoding encoding) {
  if (hole.kind == HoleKind::text) return static_cast<std::size_t>(hole.high);
  switch (encoding) {
    case Encoding::fixed32:
    case Encoding::float_number:
      return 4;
    case Encoding::fixed64:
    case Encoding::double_number:
      return 8;
    default:
      return std::nullopt;
  }
}

void write_number(BackWriter& out, Encoding encoding, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  switch (encoding) {
    case Encoding::varint:
      return out.varint(bits);
    case Encoding::varint_u32:
      return out.varint(static_cast<std::uint32_t>(bits));
    case Encoding::varint_i32:
      return out.varint(
          static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value))));
    case Encoding::zigzag:
      return out.varint((bits << 1) ^ static_cast<std::uint64_t>(value >> 63));
    case Encoding::zigzag_32: {
      const auto narrow = static_cast<std::int32_t>(value);
      return out.varint((static_cast<std::uint32_t>(narrow) << 1) ^
                        static_cast<std::uint32_t>(narrow >> 31));
    }
    case Encoding::fixed32:
      return out.little_endian(static_cast<std::uint32_t>(bits));
    case Encoding::fixed64:
      return out.little_endian(bits);
    case Encoding::float_number:
      return out.little_endian(static_cast<float>(value));
    case Encoding::double_number:
      return out.little_endian(static_cast<double>(value));
    case Encoding::text: {
      std::array<char, kMaxDecimal> buffer;
      const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
      return out.bytes(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
    }
  }
}

// Few enough for gzip to make a fifth of a long text, as it does of records and XML.
constexpr std::array<std::string_view, 32> kWords = {
    "account ",  "address ",  "amount ",   "article ",  "balance ",  "batch ",    "customer ",
    "date ",     "delivery ", "discount ", "employee ", "invoice ",  "item ",     "ledger ",
    "manager ",  "number ",   "office ",   "order ",    "payment ",  "position ", "price ",
    "product ",  "quantity ", "record ",   "region ",   "shipment ", "status ",   "store ",
    "supplier ", "total ",    "value ",    "warehouse "};

void write_words(char* to, std::size_t size, Random& random) {
  std::uint64_t bits = 0;
  int left = 0;
  while (size > 0) {
    if (left == 0) {
      bits = random();
      left = 12;  // words of five bits in one draw
    }
    const std::string_view word = kWords[bits & 31];
    bits >>= 5;
    --left;
    const std::size_t part = std::min(size, word.size());
    std::memcpy(to, word.data(), part);
    to += part;
    size -= part;
  }
}

void write_hole(BackWriter& out, const Hole& hole, Encoding encoding,
                const MessageTemplate::Context& context) {
  switch (hole.kind) {
    case HoleKind::random:
      return write_number(out, encoding, context.random.between(hole.low, hole.high));
    case HoleKind::seq:
      return write_number(out, encoding, static_cast<std::int64_t>(context.seq));
    case HoleKind::connection:
      return write_number(out, encoding, static_cast<std::int64_t>(context.connection));
    case HoleKind::agent:
      return out.bytes(context.agent.data(), context.agent.size());
    case HoleKind::text: {
      const auto size = static_cast<std::size_t>(hole.high);
      return write_words(out.room(size), size, context.random);
    }
  }
}

}  // namespace

void TemplateProgram::literal(std::string_view bytes) {
  if (bytes.empty()) return;
  Instruction instruction;
  instruction.offset = static_cast<std::uint32_t>(bytes_.size());
  instruction.size = static_cast<std::uint32_t>(bytes.size());
  bytes_ += bytes;
  code_.push_back(instruction);
}

void TemplateProgram::hole(const Hole& hole, Encoding encoding) {
  Instruction instruction;
  instruction.op = Op::hole;
  instruction.encoding = encoding;
  instruction.hole = hole;
  code_.push_back(instruction);
  is_constant_ = false;
}

void TemplateProgram::begin_length() { code_.emplace_back().op = Op::begin_length; }
void TemplateProgram::end_length() { code_.emplace_back().op = Op::end_length; }

void TemplateProgram::finish() {
  fold_constant_lengths();
  join_literals();
  for (const Instruction& instruction : code_) {
    if (instruction.op == Op::literal) size_max_ += instruction.size;
    if (instruction.op == Op::begin_length) size_max_ += kMaxVarint;
    if (instruction.op != Op::hole) continue;
    if (instruction.hole.kind == HoleKind::agent)
      ++agent_holes_;
    else
      size_max_ += fixed_width(instruction.hole, instruction.encoding).value_or(kMaxDecimal);
  }
}

// A length whose content always has the same size is a literal itself: no stack at run time, and,
// when all are so, a program of nothing but copies and patches.
void TemplateProgram::fold_constant_lengths() {
  std::vector<Instruction> folded;
  struct Open {
    std::size_t at;    // of begin_length in `folded`
    std::size_t size;  // of the content so far
    bool is_fixed;
  };
  std::vector<Open> open{{0, 0, true}};
  for (const Instruction& instruction : code_) {
    switch (instruction.op) {
      case Op::literal:
        open.back().size += instruction.size;
        folded.push_back(instruction);
        break;
      case Op::hole:
        if (const auto width = fixed_width(instruction.hole, instruction.encoding))
          open.back().size += *width;
        else
          open.back().is_fixed = false;
        folded.push_back(instruction);
        break;
      case Op::begin_length:
        open.push_back({folded.size(), 0, true});
        folded.push_back(instruction);
        break;
      case Op::end_length: {
        const Open done = open.back();
        open.pop_back();
        CHECK(!open.empty(), "end_length() without begin_length()");
        if (!done.is_fixed) {
          open.back().is_fixed = false;
          folded.push_back(instruction);
          break;
        }
        std::array<char, kMaxVarint> prefix;
        const std::size_t prefix_size = varint_size(done.size);
        BackWriter(prefix.data() + prefix_size).varint(done.size);
        Instruction& begin = folded[done.at];
        begin.op = Op::literal;
        begin.offset = static_cast<std::uint32_t>(bytes_.size());
        begin.size = static_cast<std::uint32_t>(prefix_size);
        bytes_.append(prefix.data(), prefix_size);
        open.back().size += prefix_size + done.size;
        break;
      }
    }
  }
  CHECK(open.size() == 1, "begin_length() without end_length()");
  code_ = std::move(folded);
}

void TemplateProgram::join_literals() {
  std::vector<Instruction> joined;
  std::string bytes;
  for (const Instruction& instruction : code_) {
    if (instruction.op != Op::literal) {
      joined.push_back(instruction);
      continue;
    }
    if (joined.empty() || joined.back().op != Op::literal) {
      joined.push_back(instruction);
      joined.back().offset = static_cast<std::uint32_t>(bytes.size());
      joined.back().size = 0;
    }
    joined.back().size += instruction.size;
    bytes.append(bytes_, instruction.offset, instruction.size);
  }
  code_ = std::move(joined);
  bytes_ = std::move(bytes);
}

void TemplateProgram::run(const MessageTemplate::Context& context, std::string& out) const {
  const std::size_t begin = out.size();
  const std::size_t room = size_max_ + agent_holes_ * context.agent.size();
  out.resize(begin + room);
  char* const first = out.data() + begin;
  BackWriter writer(first + room);
  std::array<char*, kMaxDepth> ends;
  std::size_t depth = 0;
  for (std::size_t i = code_.size(); i-- > 0;) {
    const Instruction& instruction = code_[i];
    switch (instruction.op) {
      case Op::literal:
        writer.bytes(bytes_.data() + instruction.offset, instruction.size);
        break;
      case Op::hole:
        write_hole(writer, instruction.hole, instruction.encoding, context);
        break;
      case Op::end_length:
        CHECK(depth < kMaxDepth, "message nested too deep");
        ends[depth++] = writer.position();
        break;
      case Op::begin_length:
        writer.varint(static_cast<std::uint64_t>(ends[--depth] - writer.position()));
        break;
    }
  }
  const auto unused = static_cast<std::size_t>(writer.position() - first);
  if (unused == 0) return;
  std::memmove(first, first + unused, room - unused);
  out.resize(begin + room - unused);
}

}  // namespace spate::agent
