#include "target-server/calls.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <array>
#include <cstdint>
#include <optional>

#include "proto/target.pb.h"

namespace spate::target_server {
namespace {

namespace v1 = ::spate::target::v1;

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr std::uint32_t length_delimited(int field) {
  return WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
}

// add, mul, echo of an Expression; at the top, the calls of the request.
bool opens_expression(std::uint32_t tag, bool at_top) {
  if (at_top) return tag == length_delimited(v1::CallRequest::kCallFieldNumber);
  return tag == length_delimited(v1::Expression::kAddFieldNumber) ||
         tag == length_delimited(v1::Expression::kMulFieldNumber) ||
         tag == length_delimited(v1::Expression::kEchoFieldNumber);
}

// The index of the first call nested too deep, if there is one. Protobuf's parser would only say
// "does not parse" at a depth of 100, hence this walk over the tags. Bytes that make no sense are
// left to the parser.
std::optional<std::uint64_t> find_too_deep(std::string_view request) {
  // An Expression at level kMaxCallDepth + 1 is the last operand allowed; it must not hold a call
  // itself.
  constexpr std::size_t kMaxLevel = kMaxCallDepth + 1;
  std::array<CodedInputStream::Limit, kMaxLevel + 1> outer{};
  std::size_t level = 0;
  std::uint64_t calls = 0;
  CodedInputStream in(reinterpret_cast<const std::uint8_t*>(request.data()),
                      static_cast<int>(request.size()));
  for (;;) {
    const std::uint32_t tag = in.ReadTag();
    if (tag == 0) {
      if (level == 0 || !in.ConsumedEntireMessage()) return std::nullopt;
      in.PopLimit(outer[level--]);
    } else if (opens_expression(tag, level == 0)) {
      if (level == 0) ++calls;
      if (level == kMaxLevel) return calls - 1;
      std::uint32_t size = 0;
      if (!in.ReadVarint32(&size) || size > request.size()) return std::nullopt;
      outer[++level] = in.PushLimit(static_cast<int>(size));
    } else if (!WireFormatLite::SkipField(&in, tag)) {
      return std::nullopt;
    }
  }
}

// A number, or a text inside the request.
struct Value {
  double number = 0;
  const std::string* text = nullptr;
};

// The place is built on the way out of the recursion, so a good request pays nothing for it.
struct Mistake {
  std::string place;
  std::string what;

  void at(const char* function, int operand) {
    place = "." + std::string(function) + "[" + std::to_string(operand) + "]" + place;
  }
};

constexpr const char* kFields = "set exactly one of add, mul, echo, number, text";

bool evaluate(const v1::Expression& expression, Value& value, Mistake& mistake);

bool check_one_field(const v1::Expression& e, Mistake& mistake) {
  const int set =
      (e.add_size() > 0) + (e.mul_size() > 0) + e.has_echo() + e.has_number() + e.has_text();
  if (set == 1) return true;
  if (set == 0) {
    mistake.what = std::string("nothing is set; ") + kFields;
    return false;
  }
  std::string names;
  const auto add_name = [&names](bool is_set, const char* name) {
    if (is_set) names += (names.empty() ? "" : " and ") + std::string(name);
  };
  add_name(e.add_size() > 0, "add");
  add_name(e.mul_size() > 0, "mul");
  add_name(e.has_echo(), "echo");
  add_name(e.has_number(), "number");
  add_name(e.has_text(), "text");
  mistake.what = names + " are set together; " + kFields;
  return false;
}

template <class Operands, class Combine>
bool fold(const Operands& operands, const char* function, Combine combine, Value& value,
          Mistake& mistake) {
  if (operands.size() < 2) {
    mistake.what = std::string(function) + " needs two or more operands, has 1";
    return false;
  }
  for (int i = 0; i < operands.size(); ++i) {
    Value operand;
    if (!evaluate(operands[i], operand, mistake)) {
      mistake.at(function, i);
      return false;
    }
    if (operand.text != nullptr) {
      mistake.what = std::string(function) + " needs numbers, this is a text";
      mistake.at(function, i);
      return false;
    }
    value.number = i == 0 ? operand.number : combine(value.number, operand.number);
  }
  return true;
}

bool evaluate(const v1::Expression& e, Value& value, Mistake& mistake) {
  if (!check_one_field(e, mistake)) return false;
  if (e.has_number()) {
    value.number = e.number();
    return true;
  }
  if (e.has_text()) {
    value.text = &e.text();
    return true;
  }
  if (e.has_echo()) {
    if (evaluate(e.echo(), value, mistake)) return true;
    mistake.place = ".echo" + mistake.place;
    return false;
  }
  if (e.add_size() > 0) {
    return fold(
        e.add(), "add", [](double a, double b) { return a + b; }, value, mistake);
  }
  return fold(
      e.mul(), "mul", [](double a, double b) { return a * b; }, value, mistake);
}

std::string place_of_call(std::uint64_t index) { return "call[" + std::to_string(index) + "]"; }

}  // namespace

Result<std::string> answer_calls(std::string_view bytes) {
  if (const auto index = find_too_deep(bytes)) {
    return invalid(place_of_call(*index) + ": nested deeper than " + std::to_string(kMaxCallDepth) +
                   " calls");
  }
  v1::CallRequest request;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return invalid("the request's " + std::to_string(bytes.size()) +
                   " bytes are not a spate.target.v1.CallRequest");
  }
  v1::CallResponse response;
  response.mutable_result()->Reserve(request.call_size());
  for (int i = 0; i < request.call_size(); ++i) {
    Value value;
    Mistake mistake;
    if (!evaluate(request.call(i), value, mistake)) {
      return invalid(place_of_call(static_cast<std::uint64_t>(i)) + mistake.place + ": " +
                     mistake.what);
    }
    v1::Result* result = response.add_result();
    if (value.text != nullptr) {
      result->set_text(*value.text);
    } else {
      result->set_number(value.number);
    }
  }
  return response.SerializeAsString();
}

}  // namespace spate::target_server
