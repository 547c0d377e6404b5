# Writes OUTPUT, which defines what dashboard_files.h declares, from the files of FOLDER.
set(SOURCE "#include \"leaf/server/http/dashboard_files.h\"\n\nnamespace leaf::server {\n\n")
foreach(FILE Html:index.html Css:dashboard.css Js:dashboard.js)
  string(REPLACE ":" ";" PAIR ${FILE})
  list(GET PAIR 0 NAME)
  list(GET PAIR 1 PATH)
  # Bytes, as hexadecimal: no delimiter to meet in a text, no limit of a literal's length, no list separator to lose.
  file(READ ${FOLDER}/${PATH} BYTES HEX)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," BYTES "${BYTES}")
  string(APPEND SOURCE "static constexpr char k${NAME}Bytes[] = {${BYTES}};\n"
                       "const std::string_view kDashboard${NAME}{k${NAME}Bytes, sizeof k${NAME}Bytes};\n\n")
endforeach()
file(WRITE ${OUTPUT} "${SOURCE}}  // namespace leaf::server\n")
