// What each command's file gives to the table in main.cc.
#pragma once

#include "cli.h"

namespace leaf::cmd {

Run AddBench(CLI::App& app, CommandContext& context);
Run AddClusterRecover(CLI::App& app, CommandContext& context);
Run AddCodeCheck(CLI::App& app, CommandContext& context);
Run AddCodeKeygen(CLI::App& app, CommandContext& context);
Run AddCodeOf(CLI::App& app, CommandContext& context);
Run AddCodeReveal(CLI::App& app, CommandContext& context);
Run AddComplete(CLI::App& app, CommandContext& context);
Run AddCompletion(CLI::App& app, CommandContext& context);
Run AddConfigCheck(CLI::App& app, CommandContext& context);
Run AddConfigGet(CLI::App& app, CommandContext& context);
Run AddConfigImport(CLI::App& app, CommandContext& context);
Run AddConfigInit(CLI::App& app, CommandContext& context);
Run AddConfigShow(CLI::App& app, CommandContext& context);
Run AddDbCheck(CLI::App& app, CommandContext& context);
Run AddDbInit(CLI::App& app, CommandContext& context);
Run AddDecode(CLI::App& app, CommandContext& context);
Run AddDoctor(CLI::App& app, CommandContext& context);
Run AddEncode(CLI::App& app, CommandContext& context);
Run AddNext(CLI::App& app, CommandContext& context);
Run AddRange(CLI::App& app, CommandContext& context);
Run AddServe(CLI::App& app, CommandContext& context);
Run AddStatus(CLI::App& app, CommandContext& context);
Run AddTagAdd(CLI::App& app, CommandContext& context);
Run AddTagAdvance(CLI::App& app, CommandContext& context);
Run AddTagAdvise(CLI::App& app, CommandContext& context);
Run AddTagApply(CLI::App& app, CommandContext& context);
Run AddTagExport(CLI::App& app, CommandContext& context);
Run AddTagHistory(CLI::App& app, CommandContext& context);
Run AddTagList(CLI::App& app, CommandContext& context);
Run AddTagPause(CLI::App& app, CommandContext& context);
Run AddTagRemove(CLI::App& app, CommandContext& context);
Run AddTagRepair(CLI::App& app, CommandContext& context);
Run AddTagResume(CLI::App& app, CommandContext& context);
Run AddTagSet(CLI::App& app, CommandContext& context);
Run AddTagShow(CLI::App& app, CommandContext& context);
Run AddTokenAdd(CLI::App& app, CommandContext& context);
Run AddTokenCheck(CLI::App& app, CommandContext& context);
Run AddTokenList(CLI::App& app, CommandContext& context);
Run AddTokenRemove(CLI::App& app, CommandContext& context);
Run AddVersion(CLI::App& app, CommandContext& context);
Run AddWorkerAcceptClock(CLI::App& app, CommandContext& context);
Run AddWorkerAdopt(CLI::App& app, CommandContext& context);
Run AddWorkerCheck(CLI::App& app, CommandContext& context);
Run AddWorkerExport(CLI::App& app, CommandContext& context);
Run AddWorkerList(CLI::App& app, CommandContext& context);
Run AddWorkerRelease(CLI::App& app, CommandContext& context);
Run AddWorkerRepair(CLI::App& app, CommandContext& context);
Run AddWorkerShow(CLI::App& app, CommandContext& context);

}  // namespace leaf::cmd
