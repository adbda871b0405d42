#include "agent/message_template.h"

#include <gmock/gmock.h>
#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/util/json_util.h>

#include <nlohmann/json.hpp>

#include "proto/target.pb.h"

namespace spate::agent {
namespace {

namespace pb = google::protobuf;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kProto = R"(
  syntax = "proto3";
  package p;
  import "google/protobuf/timestamp.proto";
  service S {
    rpc Do(M) returns (M);
    rpc Stream(stream M) returns (M);
  }
  enum E { ZERO = 0; ONE = 1; }
  message Number { double value = 1; }
  message Text { string text = 1; }
  message M {
    double d = 1; float f = 2; int32 i32 = 3; int64 i64 = 4; uint32 u32 = 5; uint64 u64 = 6;
    sint32 s32 = 7; sint64 s64 = 8; fixed32 x32 = 9; fixed64 x64 = 10; sfixed32 sx32 = 11;
    sfixed64 sx64 = 12; bool b = 13; string s = 14; bytes raw = 15; E e = 16;
    M child = 17; repeated M children = 18; repeated int32 packed = 19;
    repeated string names = 20; map<string, int64> counts = 21; map<int32, M> nodes = 22;
    google.protobuf.Timestamp at = 23; Number number = 24; Text text = 25;
    oneof choice { string left = 26; int32 right = 27; }
    repeated Number numbers = 28; optional int32 maybe = 29; repeated fixed64 long_name = 30;
  }
)";

std::string descriptor_set() {
  pb::io::ArrayInputStream stream(kProto, static_cast<int>(strlen(kProto)));
  pb::io::Tokenizer tokenizer(&stream, nullptr);
  pb::compiler::Parser parser;
  pb::FileDescriptorSet set;
  EXPECT_TRUE(parser.Parse(&tokenizer, set.add_file()));
  set.mutable_file(0)->set_name("p.proto");
  return set.SerializeAsString();  // without timestamp.proto: it is known anyway
}

class Templates : public testing::Test {
 protected:
  Templates() {
    pb::Timestamp::descriptor();
    pb::FileDescriptorSet set;
    set.ParseFromString(descriptor_set());
    EXPECT_NE(pool.BuildFile(set.file(0)), nullptr);
    type = pool.FindMessageTypeByName("p.M");
  }
  Result<std::shared_ptr<const MessageTemplate>> compile(const std::string& text) {
    return MessageTemplate::compile("p.S/Do", descriptor_set(), text);
  }
  std::string rendered(const std::string& text, std::uint64_t seq = 7,
                       std::uint64_t connection = 3) {
    auto compiled = compile(text);
    if (!compiled) {
      ADD_FAILURE() << compiled.error().message;
      return {};
    }
    std::string out = "keep";
    (*compiled)->render({random, seq, connection, "agent-1"}, out);
    EXPECT_TRUE(out.starts_with("keep"));
    return out.substr(4);
  }
  std::string as_json(const std::string& bytes) {
    std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
    EXPECT_TRUE(message->ParseFromString(bytes));
    std::string out;
    EXPECT_TRUE(pb::util::MessageToJsonString(*message, &out).ok());
    return out;
  }
  json parsed(const std::string& text) { return json::parse(as_json(rendered(text))); }
  std::string error_of(const std::string& text) {
    auto compiled = compile(text);
    return compiled ? "no error" : compiled.error().message;
  }

  pb::DescriptorPool pool{pb::DescriptorPool::generated_pool()};
  pb::DynamicMessageFactory factory{&pool};
  const pb::Descriptor* type = nullptr;
  Random random{42};
};

TEST_F(Templates, WithoutTemplatesAreProtobufsOwnBytes) {
  for (const char* text : {
           R"({})",
           R"({"d":1.5,"f":-2,"i32":-1,"i64":"-5","u64":"18446744073709551615","b":true})",
           R"({"s":"é","raw":"AAEC","e":"ONE","child":{"child":{"i32":0,"s":"x"}}})",
           R"({"packed":[1,-2,3],"names":["a",""],"children":[{},{"s":"y"}],"longName":[1]})",
           R"({"counts":{"a":1,"b":"2"},"nodes":{"5":{"s":"z"}},"at":"2026-11-30T10:26:19Z"})",
           R"({"left":"","maybe":0,"number":{"value":0},"i64":null})",
       }) {
    std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
    ASSERT_TRUE(pb::util::JsonStringToMessage(text, message.get()).ok()) << text;
    EXPECT_EQ(rendered(text), message->SerializeAsString()) << text;
    EXPECT_TRUE((*compile(text))->is_constant());
  }
}

// Each template written where 7 could stand gives the bytes of 7.
TEST_F(Templates, FillEveryNumberType) {
  for (const char* field : {"d", "f", "i32", "i64", "u32", "u64", "s32", "s64", "x32", "x64",
                            "sx32", "sx64", "s", "maybe", "right"}) {
    const bool is_text = std::string(field) == "s";
    const std::string plain = json{{field, is_text ? json("7") : json(7)}, {"names", {"n"}}}.dump();
    for (const char* hole : {"{{seq}}", "{{random 7 7}}", "{{ random  7 7 }}"}) {
      EXPECT_EQ(rendered(json{{field, hole}, {"names", {"n"}}}.dump()), rendered(plain)) << field;
    }
  }
  EXPECT_EQ(
      rendered(R"({"s32":"{{random -9 -9}}","i32":"{{random -9 -9}}","s64":"{{random -9 -9}}"})"),
      rendered(R"({"s32":-9,"i32":-9,"s64":-9})"));
}

TEST_F(Templates, StandInsideTextListsMapsAndChildren) {
  EXPECT_EQ(rendered(R"({"s":"n {{seq}} of {{agent}} on {{connection}}!"})"),
            rendered(R"({"s":"n 7 of agent-1 on 3!"})"));
  EXPECT_EQ(rendered(R"({"packed":[1,"{{seq}}",300],"names":["a","{{agent}}"]})"),
            rendered(R"({"packed":[1,7,300],"names":["a","agent-1"]})"));
  EXPECT_EQ(rendered(R"({"counts":{"k":"{{seq}}"},"nodes":{"-5":{"s":"{{agent}}"}}})"),
            rendered(R"({"counts":{"k":7},"nodes":{"-5":{"s":"agent-1"}}})"));
  EXPECT_EQ(
      rendered(
          R"({"child":{"child":{"child":{"s":"{{agent}}","i64":"{{seq}}"}}},"longName":["{{seq}}"]})"),
      rendered(R"({"child":{"child":{"child":{"s":"agent-1","i64":7}}},"longName":[7]})"));
}

TEST_F(Templates, ReadShortForms) {
  EXPECT_EQ(
      rendered(R"({"number":5,"text":"five","numbers":[1,{"value":2}],"names":"one"})"),
      rendered(
          R"({"number":{"value":5},"text":{"text":"five"},"numbers":[{"value":1},{"value":2}],"names":["one"]})"));
  EXPECT_EQ(rendered(R"({"number":"{{seq}}","text":"{{seq}}","numbers":"{{seq}}"})"),
            rendered(R"({"number":{"value":7},"text":{"text":"7"},"numbers":[{"value":7}]})"));
}

TEST_F(Templates, RandomStaysInItsRangeAndMoves) {
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    const json value =
        parsed(R"({"i32":"{{random -3 4}}","s":"{{random 10 12}}","d":"{{random 0 999999}}"})");
    EXPECT_GE(value.value("i32", 0), -3);
    EXPECT_LE(value.value("i32", 0), 4);
    EXPECT_THAT(value["s"].get<std::string>(), testing::AnyOf("10", "11", "12"));
    EXPECT_LE(value.value("d", 0.0), 999999);
    seen.insert(value.dump());
  }
  EXPECT_GT(seen.size(), 100U);
  EXPECT_FALSE((*compile(R"({"i32":"{{seq}}"})"))->is_constant());
}

TEST_F(Templates, NameMistakesWithTheirPlace) {
  EXPECT_THAT(error_of(R"({"child":{"nmaes":["x"]}})"),
              AllOf(HasSubstr("/child/nmaes"), HasSubstr("names")));
  EXPECT_THAT(error_of(R"({"i32":"abc"})"), AllOf(HasSubstr("/i32"), HasSubstr("int32")));
  EXPECT_THAT(error_of(R"({"children":[{},{"b":"{{seq}}"}]})"),
              AllOf(HasSubstr("/children/1/b"), HasSubstr("bool")));
  EXPECT_THAT(error_of(R"({"i32":"{{random 0 3000000000}}"})"),
              AllOf(HasSubstr("/i32"), HasSubstr("does not fit")));
  EXPECT_THAT(error_of(R"({"u32":"{{random -1 3}}"})"), HasSubstr("does not fit"));
  EXPECT_THAT(error_of(R"({"i32":"{{agent}}"})"), HasSubstr("is text"));
  EXPECT_THAT(error_of(R"({"i32":"a {{seq}}"})"), HasSubstr("is text"));
  EXPECT_THAT(error_of(R"({"s":"{{random 1}}"})"), HasSubstr("two whole numbers"));
  EXPECT_THAT(error_of(R"({"s":"{{random 5 1}}"})"), HasSubstr("larger"));
  EXPECT_THAT(error_of(R"({"s":"{{sequence}}"})"), HasSubstr("no template sequence"));
  EXPECT_THAT(error_of(R"({"s":"{{seq}"})"), HasSubstr("not closed"));
  EXPECT_THAT(error_of(R"({"at":"{{seq}}"})"), AllOf(HasSubstr("/at"), HasSubstr("Timestamp")));
  EXPECT_THAT(error_of(R"({"child":5})"), AllOf(HasSubstr("/child"), HasSubstr("write an object")));
  EXPECT_THAT(error_of(R"({"left":"{{seq}}","right":1})"), HasSubstr("oneof choice"));
  EXPECT_THAT(error_of(R"({"counts":{"{{seq}}":1}})"), HasSubstr("keys"));
  EXPECT_THAT(error_of("[1"), HasSubstr("not JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("JSON object"));
}

TEST_F(Templates, NameTheMethodsThereAre) {
  const auto error = [](const char* method) {
    auto compiled = MessageTemplate::compile(method, descriptor_set(), "{}");
    return compiled ? "no error" : compiled.error().message;
  };
  EXPECT_THAT(error("p.S/Dont"), AllOf(HasSubstr("p.S/Dont"), HasSubstr("p.S/Do")));
  EXPECT_THAT(error("q.T/Do"), HasSubstr("p.S/Stream"));
  EXPECT_THAT(error("p.S/Stream"), HasSubstr("streaming"));
  EXPECT_THAT(error("nonsense"), HasSubstr("package.Service/Method"));
  EXPECT_FALSE(MessageTemplate::compile("p.S/Do", "\xff\xff", "{}"));
}

TEST(BundledTarget, IsKnownWithoutDescriptors) {
  auto compiled = MessageTemplate::compile(
      "spate.target.v1.Calls/Call", "",
      R"({"call":{"add":[{"add":["{{random 5 5}}",2]},{"mul":["{{random 3 3}}","{{seq}}"]},"x"]}})");
  ASSERT_TRUE(compiled) << compiled.error().message;
  Random random(1);
  std::string bytes;
  (*compiled)->render({random, 9, 0, "a"}, bytes);
  target::v1::CallRequest request;
  ASSERT_TRUE(request.ParseFromString(bytes));
  ASSERT_EQ(request.call_size(), 1);
  const auto& add = request.call(0).add();
  ASSERT_EQ(add.size(), 3);
  EXPECT_EQ(add[0].add(0).number(), 5);
  EXPECT_EQ(add[0].add(1).number(), 2);
  EXPECT_EQ(add[1].mul(0).number(), 3);
  EXPECT_EQ(add[1].mul(1).number(), 9);
  EXPECT_EQ(add[2].text(), "x");
  EXPECT_EQ(request.SerializeAsString(), bytes);
}

TEST_F(Templates, WriteTextOfExactlyTheLengthAskedFor) {
  for (const int size : {1, 5, 127, 128, 14'000, 1'000'000}) {
    const std::unique_ptr<pb::Message> message(factory.GetPrototype(type)->New());
    ASSERT_TRUE(message->ParseFromString(
        rendered(R"({"s": "<{{text )" + std::to_string(size) + R"(}}>", "i32": 5})")));
    const std::string text =
        message->GetReflection()->GetString(*message, type->FindFieldByName("s"));
    ASSERT_EQ(text.size(), static_cast<std::size_t>(size) + 2);
    EXPECT_EQ(text.front(), '<');
    EXPECT_EQ(text.back(), '>');
    EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; }));
  }
  EXPECT_NE(rendered(R"({"s": "{{text 100}}"})"), rendered(R"({"s": "{{text 100}}"})"));
  EXPECT_FALSE((*compile(R"({"s": "{{text 100}}"})"))->is_constant());
}

TEST_F(Templates, RefuseTextWhereItHasNoPlace) {
  for (const char* message :
       {R"({"s": "{{text}}"})", R"({"s": "{{text 0}}"})", R"({"s": "{{text 1000001}}"})",
        R"({"s": "{{text -5}}"})", R"({"s": "{{text 5 6}}"})", R"({"i32": "{{text 5}}"})"})
    EXPECT_FALSE(compile(message)) << message;
  EXPECT_THAT(compile(R"({"s": "{{text x}}"})").error().message,
              HasSubstr("1 to 1000000, as in {{text 14000}}"));
}

}  // namespace
}  // namespace spate::agent
