#pragma once

// The compiled form of a message: literal bytes and holes, run from the back to the front, so that
// the length of everything inside a length prefix is known when the prefix is reached. Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/message_template.h"
#include "agent/template_text.h"

namespace spate::agent {

// How a hole's number is spelled on the wire.
enum class Encoding : std::uint8_t {
  varint,         // int32, int64, uint32, uint64 (sign extended)
  varint_u32,     // uint32: the low 32 bits
  varint_i32,     // int32: the low 32 bits, sign extended
  zigzag,         // sint64
  zigzag_32,      // sint32
  fixed32,        // fixed32, sfixed32
  fixed64,        // fixed64, sfixed64
  float_number,   // float
  double_number,  // double
  text,           // in decimal, a name or words; its length is another instruction's business
};

class TemplateProgram {
 public:
  // Built from the front: what is appended first stands first in the message.
  void literal(std::string_view bytes);
  void hole(const Hole& hole, Encoding encoding);
  // Around a length-delimited value; they nest.
  void begin_length();
  void end_length();
  // Once, at the end.
  void finish();

  bool is_constant() const { return is_constant_; }
  // Appends the message. No allocation if `out` has room.
  void run(const MessageTemplate::Context& context, std::string& out) const;

 private:
  enum class Op : std::uint8_t { literal, hole, begin_length, end_length };
  struct Instruction {
    Op op = Op::literal;
    Encoding encoding = Encoding::varint;
    Hole hole;
    std::uint32_t offset = 0;  // of a literal in bytes_
    std::uint32_t size = 0;
  };

  void fold_constant_lengths();
  void join_literals();

  std::vector<Instruction> code_;
  std::string bytes_;
  std::size_t size_max_ = 0;  // without the agent's name
  std::size_t agent_holes_ = 0;
  bool is_constant_ = true;
};

}  // namespace spate::agent
