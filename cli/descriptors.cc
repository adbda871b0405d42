#include "cli/descriptors.h"

#include <google/protobuf/compiler/importer.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/descriptor_database.h>

#include <filesystem>
#include <set>

#include "cli/files.h"
#include "common/plan_json.h"

namespace spate::cli {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

class Mistakes : public pb::compiler::MultiFileErrorCollector {
 public:
  explicit Mistakes(std::vector<std::string>& out) : out_(out) {}
  void AddError(const std::string& file, int line, int column, const std::string& text) override {
    // They count from 0; -1 is no place in particular.
    const std::string place =
        line < 0 ? "" : ":" + std::to_string(line + 1) + ":" + std::to_string(column + 1);
    out_.push_back(file + place + ": " + text);
  }

 private:
  std::vector<std::string>& out_;
};

// With everything it imports, imported files first.
void collect(const pb::FileDescriptor& file, std::set<const pb::FileDescriptor*>& seen,
             pb::FileDescriptorSet& out) {
  if (!seen.insert(&file).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) collect(*file.dependency(i), seen, out);
  file.CopyTo(out.add_file());
}

// "" if `pool` has the method; otherwise what is wrong with it.
std::string method_problem(const pb::DescriptorPool& pool, const pb::FileDescriptorSet& files,
                           const std::string& method, const std::string& source) {
  const std::size_t slash = method.find('/');
  if (slash == std::string::npos)
    return source + ": call.method \"" + method + "\" is not package.Service/Method";
  std::string full = method;
  full[slash] = '.';
  const auto* found = pool.FindMethodByName(full);
  if (found && (found->client_streaming() || found->server_streaming()))
    return source + ": " + method + " is a streaming method; only unary ones can be flooded";
  if (found) return "";
  std::vector<std::string> known;
  for (const auto& file : files.file())
    for (const auto& service : file.service())
      for (const auto& m : service.method())
        known.push_back((file.package().empty() ? "" : file.package() + ".") + service.name() +
                        "/" + m.name());
  const std::string near = nearest(method, known);
  std::string text = source + " has no method " + method;
  if (!near.empty()) return text + "; did you mean " + near + "?";
  if (known.empty()) return text + ", nor any other";
  text += "; it has";
  for (std::size_t i = 0; i < known.size() && i < 10; ++i) text += (i ? ", " : " ") + known[i];
  return text;
}

DescriptorsOrProblems from_proto(const Call& call, const fs::path& directory) {
  DescriptorsOrProblems result;
  const fs::path path =
      fs::path(call.proto).is_absolute() ? fs::path(call.proto) : directory / call.proto;
  if (!fs::exists(path)) {
    result.problems.push_back("call.proto: there is no " + path.string());
    return result;
  }
  // An import is looked for beside the file, then in the directories above it, up to the plan's
  // own.
  pb::compiler::DiskSourceTree tree;
  const std::string name = path.filename().string();
  const fs::path top = fs::weakly_canonical(directory.empty() ? "." : directory);
  for (fs::path at = fs::weakly_canonical(path).parent_path();; at = at.parent_path()) {
    tree.MapPath("", at.string());
    if (at == top || at == at.parent_path() || fs::path(call.proto).is_absolute()) break;
  }
  Mistakes mistakes(result.problems);
  // google/protobuf/*.proto come with the library.
  pb::DescriptorPoolDatabase bundled(*pb::DescriptorPool::generated_pool());
  pb::compiler::SourceTreeDescriptorDatabase database(&tree, &bundled);
  database.RecordErrorsTo(&mistakes);
  pb::DescriptorPool pool(&database, database.GetValidationErrorCollector());
  const pb::FileDescriptor* file = pool.FindFileByName(name);
  if (!file) {
    if (result.problems.empty())
      result.problems.push_back(path.string() + ": cannot be read as a .proto file");
    return result;
  }
  std::set<const pb::FileDescriptor*> seen;
  pb::FileDescriptorSet files;
  collect(*file, seen, files);
  if (auto problem = method_problem(pool, files, call.method, call.proto); !problem.empty())
    result.problems.push_back(problem);
  result.descriptor_set = files.SerializeAsString();
  return result;
}

DescriptorsOrProblems from_set(const Call& call, const fs::path& directory) {
  DescriptorsOrProblems result;
  const fs::path path = directory / call.descriptor_set;
  const auto bytes = read_file(path.string());
  pb::FileDescriptorSet files;
  if (!bytes) {
    result.problems.push_back("call.descriptor_set: " + bytes.error().message);
  } else if (!files.ParseFromString(*bytes) || files.file().empty()) {
    result.problems.push_back(path.string() +
                              ": is no FileDescriptorSet; make one with protoc --include_imports "
                              "--descriptor_set_out=FILE");
  } else {
    pb::DescriptorPool pool;
    for (const auto& file : files.file())
      if (!pool.BuildFile(file))
        result.problems.push_back(
            path.string() + ": " + file.name() +
            " does not build from what stands before it; make the set with --include_imports");
    if (result.problems.empty())
      if (auto problem = method_problem(pool, files, call.method, call.descriptor_set);
          !problem.empty())
        result.problems.push_back(problem);
    result.descriptor_set = *bytes;
  }
  return result;
}

}  // namespace

DescriptorsOrProblems read_descriptors(const Call& call, const std::string& plan_file) {
  const fs::path directory = fs::path(plan_file).parent_path();
  if (!call.proto.empty()) return from_proto(call, directory);
  if (!call.descriptor_set.empty()) return from_set(call, directory);
  return {};
}

}  // namespace spate::cli
