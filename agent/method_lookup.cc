#include "agent/method_lookup.h"

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <utility>
#include <vector>

#include "common/plan_json.h"
#include "proto/target.pb.h"

namespace spate::agent {
namespace pb = google::protobuf;
namespace {

// "package.Service/Method" of every method in the files of `names`.
std::vector<std::string> methods_in(const pb::DescriptorPool& pool,
                                    const std::vector<std::string>& names) {
  std::vector<std::string> methods;
  for (const std::string& name : names) {
    const pb::FileDescriptor* file = pool.FindFileByName(name);
    if (file == nullptr) continue;
    for (int s = 0; s < file->service_count(); ++s)
      for (int m = 0; m < file->service(s)->method_count(); ++m)
        methods.push_back(file->service(s)->full_name() + "/" +
                          file->service(s)->method(m)->name());
  }
  return methods;
}

std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t kMost = 20;
  std::string text;
  for (std::size_t i = 0; i < words.size() && i < kMost; ++i)
    text += (i == 0 ? "" : ", ") + words[i];
  if (words.size() > kMost) text += " and " + std::to_string(words.size() - kMost) + " more";
  return text;
}

Error not_found(const std::string& method, const std::vector<std::string>& methods) {
  std::string text = "method " + method + " is not known";
  if (const std::string near = nearest(method, methods); !near.empty())
    text += "; did you mean " + near + "?";
  text += methods.empty() ? "; the descriptors hold no service" : "; there are " + listed(methods);
  return {ErrorCode::not_found, std::move(text)};
}

}  // namespace

Result<std::unique_ptr<MethodLookup>> MethodLookup::find(std::string_view method_name,
                                                         std::string_view descriptor_set) {
  std::string method(method_name);
  if (method.starts_with('/')) method.erase(0, 1);
  const std::size_t slash = method.find('/');
  if (slash == method.npos)
    return invalid("method " + method + " is not of the form package.Service/Method");

  std::unique_ptr<MethodLookup> lookup(new MethodLookup);
  const pb::DescriptorPool* pool = pb::DescriptorPool::generated_pool();
  std::vector<std::string> files{target::v1::CallRequest::descriptor()->file()->name()};
  if (!descriptor_set.empty()) {
    pb::FileDescriptorSet set;
    if (!set.ParseFromArray(descriptor_set.data(), static_cast<int>(descriptor_set.size())))
      return invalid("the descriptor set is not a serialized google.protobuf.FileDescriptorSet");
    files.clear();
    for (const pb::FileDescriptorProto& file : set.file()) {
      files.push_back(file.name());
      lookup->files_.Add(file);  // false for a repeated file, which then changes nothing
    }
    lookup->well_known_ = std::make_unique<pb::DescriptorPoolDatabase>(*pool);
    lookup->merged_ =
        std::make_unique<pb::MergedDescriptorDatabase>(&lookup->files_, lookup->well_known_.get());
    lookup->pool_ = std::make_unique<pb::DescriptorPool>(lookup->merged_.get());
    pool = lookup->pool_.get();
  }

  const std::vector<std::string> methods = methods_in(*pool, files);
  if (std::find(methods.begin(), methods.end(), method) == methods.end())
    return not_found(method, methods);
  const pb::MethodDescriptor* found =
      pool->FindServiceByName(method.substr(0, slash))->FindMethodByName(method.substr(slash + 1));
  if (found->client_streaming() || found->server_streaming())
    return invalid("method " + method + " is streaming; only unary methods can be flooded");
  lookup->request_ = found->input_type();
  return lookup;
}

}  // namespace spate::agent
