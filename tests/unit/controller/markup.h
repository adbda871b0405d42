#pragma once

// A strict little checker of XML: every tag closed in order, attributes quoted, no stray markup
// characters.

#include <cctype>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace spate::controller::test {

// "" if well-formed, else what is wrong and where.
inline std::string markup_problem(std::string_view text) {
  std::vector<std::string> open;
  std::size_t i = 0;
  const auto problem = [&](const std::string& what) {
    return what + " at " + std::to_string(i) + ": " +
           std::string(text.substr(i > 40 ? i - 40 : 0, 120));
  };
  const auto entity = [&] {
    const auto end = text.find(';', i);
    if (end == text.npos || end - i > 8) return false;
    const auto name = text.substr(i + 1, end - i - 1);
    return name == "amp" || name == "lt" || name == "gt" || name == "quot" || name.starts_with('#');
  };
  while (i < text.size()) {
    if (text[i] == '&' && !entity()) return problem("a bare &");
    if (static_cast<unsigned char>(text[i]) < 0x20 && !std::strchr("\n\t", text[i]))
      return problem("a control character");
    if (text[i] == '>') {
      // Allowed in XML text (style sheet, script), but nowhere else in the page.
      if (open.empty() || (open.back() != "style" && open.back() != "script"))
        return problem("a bare >");
    }
    if (text[i] != '<') {
      ++i;
      continue;
    }
    if (text.substr(i).starts_with("<!DOCTYPE html>")) {
      i += 15;
      continue;
    }
    if (text.substr(i).starts_with("<![CDATA[")) {
      const auto end = text.find("]]>", i);
      if (end == text.npos) return problem("an open CDATA");
      i = end + 3;
      continue;
    }
    const bool closes = i + 1 < text.size() && text[i + 1] == '/';
    std::size_t at = i + (closes ? 2 : 1);
    std::string tag;
    while (at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])))
      tag += text[at++];
    if (tag.empty()) return problem("a bare <");
    if (closes) {
      if (at >= text.size() || text[at] != '>' || open.empty() || open.back() != tag)
        return problem("</" + tag + "> out of order");
      open.pop_back();
      i = at + 1;
      continue;
    }
    bool self_closing = false;
    std::vector<std::string> names;
    while (at < text.size() && text[at] != '>') {
      if (text[at] == '/') {
        self_closing = true;
        ++at;
        continue;
      }
      if (text[at] != ' ') return problem("<" + tag + "> has something that is no attribute");
      ++at;
      std::string name;
      while (at < text.size() &&
             (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '-'))
        name += text[at++];
      for (const auto& other : names)
        if (other == name) return problem("attribute " + name + " twice");
      names.push_back(name);
      if (name.empty() || text.substr(at, 2) != "=\"")
        return problem("<" + tag + "> has an unquoted attribute");
      const auto end = text.find('"', at + 2);
      if (end == text.npos || text.substr(at + 2, end - at - 2).find('<') != std::string_view::npos)
        return problem("<" + tag + "> has a broken attribute");
      at = end + 1;
    }
    if (!self_closing) open.push_back(tag);
    i = at + 1;
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

}  // namespace spate::controller::test
