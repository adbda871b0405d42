#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/exit_code.h"
#include "cli/pki.h"
#include "cli/verbs.h"

namespace spate::cli {
namespace {

struct Flags {
  std::string directory = "pki";
  CertificateRequest request;
};

int init(const Flags& flags) {
  const auto files = make_ca(flags.directory);
  if (!files) return fail(files.error());
  std::printf("%s\n%s\n", files->certificate.c_str(), files->key.c_str());
  std::fprintf(stderr,
               "ca.key signs: keep it here, or offline. Every program gets ca.crt and a pair of "
               "its own, e.g.\n"
               "  spate pki issue --dir %s --role controller --name main --host HOST\n",
               flags.directory.c_str());
  return kPassed;
}

int issue(const Flags& flags) {
  const auto files = issue(flags.directory, flags.request);
  if (!files) return fail(files.error());
  std::printf("%s\n%s\n", files->certificate.c_str(), files->key.c_str());
  const std::string program =
      flags.request.role == "operator" ? "spate VERB" : "spate-" + flags.request.role;
  std::fprintf(stderr, "use them with\n  %s --ca %s/ca.crt --cert %s --key %s …\n", program.c_str(),
               flags.directory.c_str(), files->certificate.c_str(), files->key.c_str());
  return kPassed;
}

}  // namespace

void add_pki(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("pki", "Certificates: what every address beyond loopback needs");
  verb->require_subcommand(1);
  const auto flags = std::make_shared<Flags>();
  CLI::App* made = verb->add_subcommand("init", "Make a CA: DIR/ca.crt and DIR/ca.key");
  made->callback([flags, &exit_code] { exit_code = init(*flags); });
  CLI::App* issued =
      verb->add_subcommand("issue", "Make a key and a certificate: DIR/ROLE-NAME.key and .crt");
  issued->add_option("--role", flags->request.role, "controller, agent, operator or target")
      ->required()
      ->check(CLI::IsMember({"controller", "agent", "operator", "target"}));
  issued->add_option("--name", flags->request.name, "Whose it is, e.g. pc-01")->required();
  issued
      ->add_option("--host", flags->request.hosts, "A name or address it answers under; repeatable")
      ->allow_extra_args(false);
  issued->add_option("--days", flags->request.days, "How long it is good for")
      ->capture_default_str();
  issued->callback([flags, &exit_code] { exit_code = issue(*flags); });
  for (CLI::App* sub : {made, issued})
    sub->add_option("--dir", flags->directory, "Where the files are")
        ->envname("SPATE_PKI_DIR")
        ->capture_default_str();
}

}  // namespace spate::cli
