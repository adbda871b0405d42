#include "target-server/calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdint>

#include "proto/target.pb.h"

namespace spate::target_server {
namespace {

namespace v1 = ::spate::target::v1;
using ::testing::HasSubstr;

void set_number(v1::Expression* e, double value) { e->set_number(value); }

v1::CallResponse answer(const v1::CallRequest& request) {
  const auto bytes = answer_calls(request.SerializeAsString());
  EXPECT_TRUE(bytes) << bytes.error().message;
  v1::CallResponse response;
  if (bytes) {
    EXPECT_TRUE(response.ParseFromString(*bytes));
  }
  return response;
}

std::string mistake(const v1::CallRequest& request) {
  const auto bytes = answer_calls(request.SerializeAsString());
  EXPECT_FALSE(bytes);
  return bytes ? "" : bytes.error().message;
}

std::string varint(std::size_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

// A number wrapped `depth` times into echo (tag 0x1a), by hand: the generated code would recurse
// itself. Built backwards from the inside, which is linear.
std::string nested_echo(int depth) {
  const std::string body("\x21\0\0\0\0\0\0\xf0\x3f", 9);  // number 1
  std::string out(body.rbegin(), body.rend());
  for (int i = 0; i <= depth; ++i) {
    const std::string size = varint(out.size());
    out.append(size.rbegin(), size.rend());
    out += i == depth ? '\x0a' : '\x1a';  // CallRequest.call outermost
  }
  return {out.rbegin(), out.rend()};
}

TEST(Calls, EvaluatesTheNestedCallOfTheAllocatorFlood) {
  v1::CallRequest request;
  auto* add = request.add_call();
  auto* left = add->add_add();
  set_number(left->add_add(), 1);
  set_number(left->add_add(), 2);
  auto* right = add->add_add();
  set_number(right->add_mul(), 3);
  set_number(right->add_mul(), 4);
  const auto response = answer(request);
  ASSERT_EQ(response.result_size(), 1);
  EXPECT_EQ(response.result(0).number(), 15);
}

TEST(Calls, AnswersManyCallsInOrder) {
  v1::CallRequest request;
  for (int i = 0; i < 100; ++i) {
    auto* call = request.add_call();
    if (i % 2 == 0) {
      call->mutable_echo()->set_text("text " + std::to_string(i));
    } else {
      set_number(call, i + 0.5);
    }
  }
  const auto response = answer(request);
  ASSERT_EQ(response.result_size(), 100);
  EXPECT_EQ(response.result(42).text(), "text 42");
  EXPECT_EQ(response.result(43).number(), 43.5);
}

TEST(Calls, TakesMoreThanTwoOperands) {
  v1::CallRequest request;
  auto* add = request.add_call();
  auto* mul = request.add_call();
  for (int i = 1; i <= 5; ++i) {
    set_number(add->add_add(), i);
    set_number(mul->add_mul(), i);
  }
  const auto response = answer(request);
  EXPECT_EQ(response.result(0).number(), 15);
  EXPECT_EQ(response.result(1).number(), 120);
}

TEST(Calls, AnswersARequestWithoutCallsWithoutResults) { EXPECT_EQ(answer({}).result_size(), 0); }

TEST(Calls, NamesThePlaceOfAMissingOperand) {
  v1::CallRequest request;
  set_number(request.add_call(), 1);
  auto* add = request.add_call();
  set_number(add->add_add(), 1);
  set_number(add->add_add()->mutable_echo()->add_mul(), 2);
  EXPECT_EQ(mistake(request), "call[1].add[1].echo: mul needs two or more operands, has 1");
}

TEST(Calls, RefusesAnEmptyExpression) {
  v1::CallRequest request;
  auto* add = request.add_call();
  set_number(add->add_add(), 1);
  add->add_add();
  EXPECT_EQ(mistake(request),
            "call[0].add[1]: nothing is set; set exactly one of add, mul, echo, number, text");
}

TEST(Calls, RefusesTwoFieldsAtOnce) {
  v1::CallRequest request;
  request.add_call()->set_number(1);
  request.mutable_call(0)->set_text("x");
  EXPECT_THAT(mistake(request), HasSubstr("call[0]: number and text are set together"));
}

TEST(Calls, RefusesToAddATextFromAnEcho) {
  v1::CallRequest request;
  auto* add = request.add_call();
  set_number(add->add_add(), 1);
  add->add_add()->mutable_echo()->set_text("2");
  EXPECT_EQ(mistake(request), "call[0].add[1]: add needs numbers, this is a text");
}

TEST(Calls, RefusesBytesThatAreNoRequest) {
  const auto bytes = answer_calls("\x0a\x7fnot a message");
  ASSERT_FALSE(bytes);
  EXPECT_THAT(bytes.error().message, HasSubstr("are not a spate.target.v1.CallRequest"));
}

TEST(Calls, AllowsSixtyFourNestedCalls) {
  const auto bytes = answer_calls(nested_echo(64));
  ASSERT_TRUE(bytes) << bytes.error().message;
  v1::CallResponse response;
  ASSERT_TRUE(response.ParseFromString(*bytes));
  EXPECT_EQ(response.result(0).number(), 1);
}

class TooDeep : public ::testing::TestWithParam<int> {};

TEST_P(TooDeep, GetsAClearError) {
  const auto bytes = answer_calls(nested_echo(GetParam()));
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().message, "call[0]: nested deeper than 64 calls");
}

INSTANTIATE_TEST_SUITE_P(Depths, TooDeep, ::testing::Values(65, 100, 101, 1000, 100'000));

TEST(Calls, NamesTheCallThatIsTooDeep) {
  const auto bytes = answer_calls(nested_echo(3) + nested_echo(64) + nested_echo(65));
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().message, "call[2]: nested deeper than 64 calls");
}

TEST(Calls, SurvivesEveryTruncationAndEveryFlippedByte) {
  v1::CallRequest request;
  auto* add = request.add_call();
  set_number(add->add_add(), 1);
  add->add_add()->mutable_echo()->add_mul()->set_text("two");
  const std::string good = request.SerializeAsString();
  for (std::size_t i = 0; i < good.size(); ++i) {
    static_cast<void>(answer_calls(good.substr(0, i)));
    for (int value = 0; value < 256; ++value) {
      std::string bad = good;
      bad[i] = static_cast<char>(value);
      static_cast<void>(answer_calls(bad));
    }
  }
}

TEST(Calls, FitsTheSmallestStack) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * 1024);
  bool good = false;
  pthread_t thread{};
  const auto body = [](void* out) -> void* {
    *static_cast<bool*>(out) =
        answer_calls(nested_echo(64)).has_value() && answer_calls(nested_echo(100'000)).has_error();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &good), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace spate::target_server
