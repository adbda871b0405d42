#include "agent/message_template.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "agent/method_lookup.h"
#include "agent/template_program.h"
#include "agent/template_text.h"
#include "common/plan_json.h"

namespace spate::agent {
namespace pb = google::protobuf;
using json = nlohmann::json;

namespace {

using Field = pb::FieldDescriptor;
using WireFormat = pb::internal::WireFormatLite;

// Of length prefixes around each other; protobuf's parsers stop at 100 messages.
constexpr int kMaxDepth = 100;

// google.protobuf.* messages have JSON forms of their own, which only protobuf's parser knows.
bool is_well_known(const pb::Descriptor& type) {
  return type.file()->name().starts_with("google/protobuf/");
}

bool is_message(const Field& field) { return field.cpp_type() == Field::CPPTYPE_MESSAGE; }

bool is_number(const Field& field) {
  switch (field.cpp_type()) {
    case Field::CPPTYPE_INT32:
    case Field::CPPTYPE_INT64:
    case Field::CPPTYPE_UINT32:
    case Field::CPPTYPE_UINT64:
    case Field::CPPTYPE_DOUBLE:
    case Field::CPPTYPE_FLOAT:
      return true;
    default:
      return false;
  }
}

bool holds_template(const json& value) {
  if (value.is_string()) return has_template(value.get_ref<const std::string&>());
  if (value.is_object())
    return std::any_of(value.items().begin(), value.items().end(), [](const auto& item) {
      return has_template(item.key()) || holds_template(item.value());
    });
  if (value.is_array())
    return std::any_of(value.begin(), value.end(), [](const json& v) { return holds_template(v); });
  return false;
}

const Field* field_named(const pb::Descriptor& type, const std::string& key) {
  if (const Field* field = type.FindFieldByName(key)) return field;
  for (int i = 0; i < type.field_count(); ++i)
    if (type.field(i)->json_name() == key) return type.field(i);
  return nullptr;
}

bool is_plain_element(const json& value, const Field& field);

// True if protobuf's own JSON parser can read `value` as `field`: no templates, no short forms, no
// unknown names.
bool is_plain(const json& value, const Field& field) {
  if (holds_template(value)) return false;
  if (value.is_null()) return true;
  if (field.is_map())
    return !value.is_object() || std::all_of(value.begin(), value.end(), [&](const json& v) {
      return is_plain_element(v, *field.message_type()->map_value());
    });
  if (!field.is_repeated()) return is_plain_element(value, field);
  return value.is_array() && std::all_of(value.begin(), value.end(),
                                         [&](const json& v) { return is_plain_element(v, field); });
}

bool is_plain_element(const json& value, const Field& field) {
  if (!is_message(field) || is_well_known(*field.message_type())) return true;
  if (!value.is_object()) return false;
  for (const auto& [key, child] : value.items()) {
    const Field* known = field_named(*field.message_type(), key);
    if (known == nullptr || !is_plain(child, *known)) return false;
  }
  return true;
}

std::string type_name(const Field& field) {
  return is_message(field) ? field.message_type()->full_name() : field.type_name();
}

struct NumberForm {
  Encoding encoding;
  std::int64_t low;
  std::int64_t high;
};

template <class T>
NumberForm form(Encoding encoding) {
  constexpr auto kHigh = std::numeric_limits<std::int64_t>::max();
  const auto high = std::cmp_less(std::numeric_limits<T>::max(), kHigh)
                        ? static_cast<std::int64_t>(std::numeric_limits<T>::max())
                        : kHigh;
  return {encoding, static_cast<std::int64_t>(std::numeric_limits<T>::min()), high};
}

// For number fields only.
NumberForm number_form(const Field& field) {
  constexpr auto kLow = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHigh = std::numeric_limits<std::int64_t>::max();
  switch (field.type()) {
    case Field::TYPE_INT32:
      return form<std::int32_t>(Encoding::varint_i32);
    case Field::TYPE_SINT32:
      return form<std::int32_t>(Encoding::zigzag_32);
    case Field::TYPE_SFIXED32:
      return form<std::int32_t>(Encoding::fixed32);
    case Field::TYPE_UINT32:
      return form<std::uint32_t>(Encoding::varint_u32);
    case Field::TYPE_FIXED32:
      return form<std::uint32_t>(Encoding::fixed32);
    case Field::TYPE_UINT64:
      return form<std::uint64_t>(Encoding::varint);
    case Field::TYPE_FIXED64:
      return form<std::uint64_t>(Encoding::fixed64);
    case Field::TYPE_SINT64:
      return form<std::int64_t>(Encoding::zigzag);
    case Field::TYPE_SFIXED64:
      return form<std::int64_t>(Encoding::fixed64);
    case Field::TYPE_FLOAT:
      return {Encoding::float_number, kLow, kHigh};
    case Field::TYPE_DOUBLE:
      return {Encoding::double_number, kLow, kHigh};
    default:
      return form<std::int64_t>(Encoding::varint);
  }
}

std::string varint(std::uint32_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
  return out;
}

std::string tag(const Field& field, WireFormat::WireType type) {
  return varint(WireFormat::MakeTag(field.number(), type));
}

// Walks the nodes that protobuf's own parser cannot read, and hands it all others.
class Compiler {
 public:
  explicit Compiler(TemplateProgram& program) : program_(program) {}

  Result<void> message(const json& value, const pb::Descriptor& type, const std::string& path,
                       int depth);

 private:
  Result<void> message_or_short(const json& value, const pb::Descriptor& type,
                                const std::string& path, int depth);
  Result<void> field(const Field& field, const json& value, const std::string& path, int depth);
  Result<void> element(const Field& field, const json& value, const std::string& path, int depth);
  Result<void> packed(const Field& field, const json& values, const std::string& path);
  Result<void> map(const Field& field, const json& value, const std::string& path, int depth);
  Result<void> scalar(const Field& field, const json& value, const std::string& path);
  Result<void> text_field(const Field& field, const std::vector<TextPiece>& pieces,
                          const std::string& path);
  Result<void> number_hole(const Field& field, const Hole& hole, const std::string& path);
  // {"field": value} through protobuf; its bytes.
  Result<std::string> constant(const Field& field, const json& value, const std::string& path);

  TemplateProgram& program_;
  pb::DynamicMessageFactory factory_;
};

Error at(const std::string& path, const std::string& text) {
  return invalid((path.empty() ? std::string("/") : path) + ": " + text);
}

Error unknown_field(const pb::Descriptor& type, const std::string& key, const std::string& path) {
  std::vector<std::string> known;
  for (int i = 0; i < type.field_count(); ++i) known.push_back(type.field(i)->json_name());
  std::string text = type.full_name() + " has no field " + key;
  if (const std::string near = nearest(key, known); !near.empty()) {
    text += "; did you mean " + near + "?";
  } else {
    text += "; it has ";
    for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
    if (known.empty()) text += "none";
  }
  return at(path, text);
}

Result<void> Compiler::message(const json& value, const pb::Descriptor& type,
                               const std::string& path, int depth) {
  if (depth > kMaxDepth) return at(path, "nested too deep");
  struct Entry {
    const Field* field;
    const json* value;
    std::string path;
  };
  std::vector<Entry> entries;
  for (const auto& [key, child] : value.items()) {
    const std::string child_path = path + "/" + key;
    const Field* known = field_named(type, key);
    if (known == nullptr) return unknown_field(type, key, child_path);
    if (child.is_null()) continue;
    for (const Entry& entry : entries) {
      if (entry.field == known) return at(child_path, "given twice, also at " + entry.path);
      if (known->real_containing_oneof() != nullptr &&
          known->real_containing_oneof() == entry.field->real_containing_oneof())
        return at(child_path, "only one of the fields of oneof " +
                                  known->real_containing_oneof()->name() +
                                  " can be set; also given is " + entry.path);
    }
    entries.push_back({known, &child, child_path});
  }
  // In the order of protobuf's own serialization.
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.field->number() < b.field->number(); });
  for (const Entry& entry : entries)
    if (auto done = field(*entry.field, *entry.value, entry.path, depth); !done) return done;
  return {};
}

Result<void> Compiler::field(const Field& field, const json& value, const std::string& path,
                             int depth) {
  if (is_plain(value, field)) {
    Result<std::string> bytes = constant(field, value, path);
    if (!bytes) return bytes.error();
    program_.literal(*bytes);
    return {};
  }
  if (field.is_map()) return map(field, value, path, depth);
  if (!field.is_repeated()) return element(field, value, path, depth);
  const json list = value.is_array() ? value : json::array({value});
  if (field.is_packed()) return packed(field, list, path);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string child_path = value.is_array() ? path + "/" + std::to_string(i) : path;
    if (auto done = element(field, list[i], child_path, depth); !done) return done;
  }
  return {};
}

Result<void> Compiler::element(const Field& field, const json& value, const std::string& path,
                               int depth) {
  if (!is_message(field)) return scalar(field, value, path);
  if (field.type() == Field::TYPE_GROUP) return at(path, "groups cannot hold templates");
  program_.literal(tag(field, WireFormat::WIRETYPE_LENGTH_DELIMITED));
  program_.begin_length();
  auto done = message_or_short(value, *field.message_type(), path, depth + 1);
  program_.end_length();
  return done;
}

Result<void> Compiler::packed(const Field& field, const json& values, const std::string& path) {
  program_.literal(tag(field, WireFormat::WIRETYPE_LENGTH_DELIMITED));
  program_.begin_length();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (auto done = scalar(field, values[i], path + "/" + std::to_string(i)); !done) return done;
  program_.end_length();
  return {};
}

Result<void> Compiler::map(const Field& field, const json& value, const std::string& path,
                           int depth) {
  if (!value.is_object()) return at(path, "a map is written as an object");
  const Field& value_field = *field.message_type()->map_value();
  for (const auto& [key, child] : value.items()) {
    const std::string child_path = path + "/" + key;
    if (has_template(key)) return at(child_path, "templates are not possible in keys");
    // One entry without its value, cut out of what protobuf makes of it: tag, length, key.
    json only_key = json::object();
    only_key[key] = is_message(value_field) ? json::object() : json();
    if (!is_message(value_field)) {
      only_key[key] = value_field.cpp_type() == Field::CPPTYPE_STRING ? json("") : json(0);
      if (value_field.cpp_type() == Field::CPPTYPE_BOOL) only_key[key] = false;
    }
    Result<std::string> entry = constant(field, only_key, child_path);
    if (!entry) return entry.error();
    pb::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(entry->data()),
                                static_cast<int>(entry->size()));
    in.ReadTag();
    std::uint32_t length = 0;
    in.ReadVarint32(&length);
    const auto key_begin = static_cast<std::size_t>(in.CurrentPosition());
    in.ReadTag();
    WireFormat::SkipField(
        &in,
        WireFormat::MakeTag(1, WireFormat::WireTypeForFieldType(static_cast<WireFormat::FieldType>(
                                   field.message_type()->map_key()->type()))));
    const auto key_end = static_cast<std::size_t>(in.CurrentPosition());
    program_.literal(tag(field, WireFormat::WIRETYPE_LENGTH_DELIMITED));
    program_.begin_length();
    program_.literal(std::string_view(*entry).substr(key_begin, key_end - key_begin));
    auto done = this->field(value_field, child, child_path, depth + 1);
    program_.end_length();
    if (!done) return done;
  }
  return {};
}

// The only singular field of `type` that `matches`; nullptr if there is none or there are several.
template <class Matches>
const Field* only_field(const pb::Descriptor& type, Matches matches) {
  const Field* only = nullptr;
  for (int i = 0; i < type.field_count(); ++i) {
    const Field* field = type.field(i);
    if (field->is_repeated() || !matches(*field)) continue;
    if (only != nullptr) return nullptr;
    only = field;
  }
  return only;
}

bool is_text(const Field& field) { return field.type() == Field::TYPE_STRING; }

Result<void> Compiler::message_or_short(const json& value, const pb::Descriptor& type,
                                        const std::string& path, int depth) {
  if (is_well_known(type)) return at(path, "templates are not possible inside " + type.full_name());
  if (value.is_object()) return message(value, type, path, depth);
  if (!value.is_number() && !value.is_string())
    return at(path, "expected an object for " + type.full_name() + ", not " + value.dump());
  const Field* field = nullptr;
  const char* kind = "number";
  if (value.is_number()) {
    field = only_field(type, is_number);
  } else {
    kind = "string";
    const auto& text = value.get_ref<const std::string&>();
    Result<std::vector<TextPiece>> pieces = parse_template_text(text);
    if (!pieces) return at(path, pieces.error().message);
    if (pieces->size() == 1 && pieces->front().is_hole && !pieces->front().hole.is_text())
      field = only_field(type, is_number);
    if (field == nullptr) field = only_field(type, is_text);
  }
  if (field == nullptr)
    return at(path, value.dump() + " cannot stand for " + type.full_name() +
                        ", which has not exactly one " + kind + " field; write an object");
  return this->field(*field, value, path, depth);
}

Result<void> Compiler::scalar(const Field& field, const json& value, const std::string& path) {
  if (!holds_template(value)) {
    const bool is_list = field.is_repeated();
    Result<std::string> bytes = constant(field, is_list ? json::array({value}) : value, path);
    if (!bytes) return bytes.error();
    if (!is_list || !field.is_packed()) {
      program_.literal(*bytes);
      return {};
    }
    // The list's own tag and length are packed()'s business.
    pb::io::CodedInputStream in(reinterpret_cast<const std::uint8_t*>(bytes->data()),
                                static_cast<int>(bytes->size()));
    in.ReadTag();
    std::uint32_t length = 0;
    in.ReadVarint32(&length);
    program_.literal(
        std::string_view(*bytes).substr(static_cast<std::size_t>(in.CurrentPosition())));
    return {};
  }
  if (!value.is_string()) return at(path, "expected " + type_name(field) + ", not " + value.dump());
  Result<std::vector<TextPiece>> pieces = parse_template_text(value.get_ref<const std::string&>());
  if (!pieces) return at(path, pieces.error().message);
  if (is_text(field)) return text_field(field, *pieces, path);
  if (!is_number(field))
    return at(path, "templates are possible in number and string fields; " + field.name() + " is " +
                        type_name(field));
  if (pieces->size() != 1 || pieces->front().hole.is_text())
    return at(path, value.dump() + " is text; " + field.name() + " is " + type_name(field));
  return number_hole(field, pieces->front().hole, path);
}

Result<void> Compiler::text_field(const Field& field, const std::vector<TextPiece>& pieces,
                                  const std::string& path) {
  (void)path;
  program_.literal(tag(field, WireFormat::WIRETYPE_LENGTH_DELIMITED));
  program_.begin_length();
  for (const TextPiece& piece : pieces) {
    if (piece.is_hole)
      program_.hole(piece.hole, Encoding::text);
    else
      program_.literal(piece.text);
  }
  program_.end_length();
  return {};
}

Result<void> Compiler::number_hole(const Field& field, const Hole& hole, const std::string& path) {
  const NumberForm form = number_form(field);
  if (hole.kind == HoleKind::random && (hole.low < form.low || hole.high > form.high))
    return at(path, "{{random " + std::to_string(hole.low) + " " + std::to_string(hole.high) +
                        "}} does not fit " + type_name(field) + ", which holds " +
                        std::to_string(form.low) + " to " + std::to_string(form.high));
  if (!field.is_packed())
    program_.literal(tag(
        field, WireFormat::WireTypeForFieldType(static_cast<WireFormat::FieldType>(field.type()))));
  program_.hole(hole, form.encoding);
  return {};
}

Result<std::string> Compiler::constant(const Field& field, const json& value,
                                       const std::string& path) {
  const std::unique_ptr<pb::Message> message(factory_.GetPrototype(field.containing_type())->New());
  json object = json::object();
  object[field.json_name()] = value;
  const auto status = pb::util::JsonStringToMessage(object.dump(), message.get());
  if (!status.ok())
    return at(path, "cannot be read as " + type_name(field) + ": " + std::string(status.message()));
  std::string bytes;
  pb::io::StringOutputStream stream(&bytes);
  pb::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);  // map entries in one order
  message->SerializePartialToCodedStream(&out);
  out.Trim();
  return bytes;
}

}  // namespace

struct MessageTemplate::Program {
  TemplateProgram code;
};

MessageTemplate::MessageTemplate(std::unique_ptr<Program> program) : program_(std::move(program)) {}
MessageTemplate::~MessageTemplate() = default;

Result<std::shared_ptr<const MessageTemplate>> MessageTemplate::compile(
    std::string_view method, std::string_view descriptor_set, std::string_view message_json) {
  auto lookup = MethodLookup::find(method, descriptor_set);
  if (!lookup) return lookup.error();
  json value;
  try {
    value = json::parse(message_json);
  } catch (const json::parse_error& error) {
    return invalid(std::string("the message is not JSON: ") + error.what());
  }
  const pb::Descriptor& request = *(*lookup)->request();
  if (!value.is_object())
    return invalid("the message must be a JSON object, " + request.full_name());
  auto program = std::make_unique<Program>();
  if (auto done = Compiler(program->code).message(value, request, "", 1); !done)
    return done.error();
  program->code.finish();
  return std::shared_ptr<const MessageTemplate>(new MessageTemplate(std::move(program)));
}

void MessageTemplate::render(const Context& context, std::string& out) const {
  program_->code.run(context, out);
}

bool MessageTemplate::is_constant() const { return program_->code.is_constant(); }

}  // namespace spate::agent
